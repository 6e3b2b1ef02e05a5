# The search: bash search.sh LEVELS OUT
here=$(dirname "$0")
train() { python "$here/train.py" --data "$1" --out "$2" "${@:3}"; }
train "$1" "$2" \
    steps=6000,anneal=0.25 steps=6000,anneal=0.25,lr=0.04 steps=6000,anneal=0.5 steps=6000,anneal=0.5,lr=0.04 \
    steps=6000,anneal=0.25,lr=0.04,decay=0.0005 steps=6000,anneal=0.25,augment=1 \
    steps=6000,anneal=0.25,lr=0.04,tau=10 steps=6000,anneal=0.25,lr=0.08
for data in fashion-mnist mnist; do
    one=data=$data,net=mnist-s,anneal=0.25,steps=5000
    [ $data = mnist ] && one=$one,thresholds=1,decay=0
    train "$1" "$2" $one,lr=0.02,augment=0 $one,lr=0.02 $one,lr=0.04,augment=0 $one,lr=0.04
done
