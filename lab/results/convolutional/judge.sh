# The runs that judge, in two minutes of one GPU: bash judge.sh DATA OUT
here=$(dirname "$0") data=$1 out=$2
train() { ${PYTHON:-python} -u "$here/train.py" --data "$data" --out "$out/$1.csv" --keep "$out" --at-once "$2" "${@:3}" > "$out/$1.log" 2>&1; }
specs() { for seed in $(seq 1000 "$2"); do echo "$1,seed=$seed"; done; }
all=test=1,lr=0.08,augment=1
train m 2 --until $(($(date +%s) + 114)) $(specs net=cifar10-m,dataset=cifar10-whole,steps=0,group_tau=60,$all 1001) &
one=net=mnist-s,test=1,weight_decay=0.002,augment=0,steps=12000
train s 5 --minutes 1.9 $(specs net=cifar10-s,dataset=cifar10-whole,steps=14000,$all 1004) \
    $(specs $one,dataset=mnist-whole,thresholds=1,lr=0.12 1002) \
    $(specs $one,dataset=fashion-mnist-whole,group_tau=13,lr=0.08 1002) &
wait
