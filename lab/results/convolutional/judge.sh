# The runs that judge, on one GPU: bash judge.sh DATA OUT
here=$(dirname "$0") data=$1 out=$2
train() { ${PYTHON:-python} -u "$here/train.py" --data "$data" --out "$out/$1.csv" --keep "$out" --at-once "$2" "${@:3}" > "$out/$1.log" 2>&1; }
specs() { for seed in $(seq 2000 "$2"); do echo "$1,seed=$seed"; done; }
best() { # whether shifts have the larger validation accuracy: 2, or 0; without them it is known
    ${PYTHON:-python} -c "import csv, sys
rows = [row for name in sys.argv[2:] for row in csv.DictReader(open(name))]
of = {'net': sys.argv[1], 'dataset': 'mnist', 'lr': '0.12', 'seed': '100', 'weight_decay': '0.002'}
rows = [row for row in rows if of.items() <= row.items()]
print(max(rows, key=lambda row: float(row['history.validation_accuracy']))['augment'])" "$1" "$here/runs.csv" "$out/shifts.csv"
}
cifar=dataset=cifar10-whole,test=1,lr=0.08,augment=1
train m 3 $(specs net=cifar10-m,steps=26000,group_tau=60,$cifar 2002) &
train s 5 $(specs net=cifar10-s,steps=24000,$cifar 2004) &
one=weight_decay=0.002,thresholds=1,lr=0.12
tried=dataset=mnist,seed=100,steps=8000,augment=2,$one
train shifts 2 net=mnist-m,$tried net=mnist-l,$tried
mnist=dataset=mnist-whole,test=1,steps=12000,$one
fashion=dataset=fashion-mnist-whole,test=1,steps=12000,weight_decay=0.002,augment=0,lr=0.08
train mnist 3 $(specs net=mnist-s,augment=0,$mnist 2002) $(specs net=mnist-m,augment=$(best mnist-m),$mnist 2002) \
    $(specs net=mnist-l,augment=$(best mnist-l),$mnist 2002) \
    $(specs net=mnist-s,group_tau=13,$fashion 2002) $(specs net=mnist-l,$fashion 2002)
wait
