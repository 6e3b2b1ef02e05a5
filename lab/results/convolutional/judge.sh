# The search and the judging runs: bash judge.sh LEVELS [OUT]
here=$(dirname "$0"); levels=$1; out=${2:-$here/runs.csv}
train() { timeout "$1" python "$here/train.py" --data "$levels" --out "$out" "${@:2}"; }
long=steps=24000
train 150 \
    --judge $long,seed=1 --judge $long,seed=2 --judge $long,seed=3 --judge $long,seed=4 --judge $long,seed=5 \
    --judge $long,seed=1,anneal=0 --judge $long,seed=2,anneal=0 \
    --judge $long,seed=1,anneal=0,gates=argmax,tau_b=2 --judge $long,seed=2,anneal=0,gates=argmax,tau_b=2 \
    --judge $long,seed=1,wiring=random --judge $long,seed=2,wiring=random \
    --judge $long,seed=1,net=cifar10-m,tau=0 \
    steps=6000,anneal=0.25 steps=6000,anneal=0.25,lr=0.04 steps=6000,anneal=0.5 steps=6000,anneal=0.5,lr=0.04 \
    steps=6000,anneal=0.25,lr=0.04,decay=0.0005 steps=6000,anneal=0.25,augment=1 \
    steps=6000,anneal=0.25,lr=0.04,tau=10 steps=6000,anneal=0.25,lr=0.08
long=steps=15000
for data in fashion-mnist mnist; do
    one=data=$data,net=mnist-s,anneal=0.25,steps=5000
    [ $data = mnist ] && one=$one,thresholds=1,decay=0
    train 60 --judge $long,seed=1 --judge $long,seed=2 --judge $long,seed=3 \
        $one,lr=0.02,augment=0 $one,lr=0.02 $one,lr=0.04,augment=0 $one,lr=0.04
done
