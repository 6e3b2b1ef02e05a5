# The runs that judge, by the settings that search.sh chose: bash judge.sh LEVELS [OUT]
here=$(dirname "$0"); levels=$1; out=${2:-$here/runs.csv}
train() { timeout 110 python "$here/train.py" --data "$levels" --out "$out$1" "${@:2}"; }
best=lr=0.08,steps=16000,test=1
one=net=mnist-s,anneal=0.25,lr=0.04,augment=0,steps=12000,test=1
train .fashion $one,data=fashion-mnist,seed=1 $one,data=fashion-mnist,seed=2 $one,data=fashion-mnist,seed=3 &
train .mnist $one,data=mnist,thresholds=1,decay=0,seed=1 $one,data=mnist,thresholds=1,decay=0,seed=2 \
    $one,data=mnist,thresholds=1,decay=0,seed=3 &
train '' $best,anneal=0.25,seed=1 $best,anneal=0.25,seed=2 $best,anneal=0.25,seed=3 $best,anneal=0.25,seed=4 \
    $best,anneal=0.25,seed=5 $best,seed=1 $best,gates=argmax,tau_b=2,seed=1 $best,anneal=0.25,wiring=random,seed=1 \
    $best,anneal=0.25,net=cifar10-m,seed=1
wait
tail -qn +2 "$out.fashion" "$out.mnist" >> "$out"
rm "$out.fashion" "$out.mnist"
