# The second search, on held-out training images: bash search.sh DATA OUT
# Rows of `screen` are a Plackett-Burman design of ten settings at two values, and the rate at three.
here=$(dirname "$0") data=$1 out=$2
train() { python "$here/train.py" --data "$data" --out "$out/$1.csv" --at-once "$2" --minutes 7.4 "${@:3}"; }
h=held_out=10000,seed=100
s=steps=6000,$h
screen="
lr=0.05,augment=1,weight_decay=0.004,schedule=flat,anneal=0.35,tau_b=2.0,group_tau=14.0,smoothing=0.1,groups=0,tau_end=0.5,beta2=0.99
lr=0.05,augment=1,weight_decay=0.004,schedule=flat,anneal=0.35,tau_b=1.0,group_tau=28.0,smoothing=0.0,groups=1,tau_end=0.5,beta2=0.999
lr=0.1,augment=1,weight_decay=0.004,schedule=flat,anneal=0.15,tau_b=2.0,group_tau=14.0,smoothing=0.1,groups=1,tau_end=1.0,beta2=0.999
lr=0.1,augment=1,weight_decay=0.004,schedule=cosine,anneal=0.35,tau_b=1.0,group_tau=28.0,smoothing=0.1,groups=0,tau_end=1.0,beta2=0.99
lr=0.2,augment=1,weight_decay=0.001,schedule=flat,anneal=0.15,tau_b=2.0,group_tau=28.0,smoothing=0.0,groups=0,tau_end=0.5,beta2=0.99
lr=0.2,augment=0,weight_decay=0.004,schedule=cosine,anneal=0.35,tau_b=2.0,group_tau=14.0,smoothing=0.0,groups=1,tau_end=0.5,beta2=0.999
lr=0.2,augment=1,weight_decay=0.001,schedule=flat,anneal=0.35,tau_b=1.0,group_tau=14.0,smoothing=0.1,groups=1,tau_end=1.0,beta2=0.999
lr=0.2,augment=0,weight_decay=0.004,schedule=flat,anneal=0.15,tau_b=1.0,group_tau=28.0,smoothing=0.1,groups=0,tau_end=1.0,beta2=0.99
lr=0.2,augment=1,weight_decay=0.004,schedule=cosine,anneal=0.15,tau_b=2.0,group_tau=28.0,smoothing=0.0,groups=0,tau_end=0.5,beta2=0.999
lr=0.2,augment=1,weight_decay=0.001,schedule=cosine,anneal=0.35,tau_b=2.0,group_tau=14.0,smoothing=0.0,groups=1,tau_end=1.0,beta2=0.99
lr=0.2,augment=0,weight_decay=0.001,schedule=flat,anneal=0.35,tau_b=1.0,group_tau=14.0,smoothing=0.1,groups=0,tau_end=0.5,beta2=0.999
lr=0.05,augment=0,weight_decay=0.004,schedule=flat,anneal=0.15,tau_b=1.0,group_tau=28.0,smoothing=0.0,groups=1,tau_end=1.0,beta2=0.999
lr=0.1,augment=1,weight_decay=0.004,schedule=cosine,anneal=0.15,tau_b=2.0,group_tau=14.0,smoothing=0.1,groups=0,tau_end=1.0,beta2=0.999
lr=0.05,augment=1,weight_decay=0.001,schedule=cosine,anneal=0.35,tau_b=1.0,group_tau=28.0,smoothing=0.0,groups=0,tau_end=1.0,beta2=0.999
lr=0.05,augment=0,weight_decay=0.001,schedule=flat,anneal=0.15,tau_b=2.0,group_tau=14.0,smoothing=0.0,groups=0,tau_end=1.0,beta2=0.99
lr=0.05,augment=0,weight_decay=0.004,schedule=cosine,anneal=0.35,tau_b=1.0,group_tau=14.0,smoothing=0.0,groups=0,tau_end=0.5,beta2=0.99
lr=0.1,augment=1,weight_decay=0.001,schedule=flat,anneal=0.15,tau_b=1.0,group_tau=14.0,smoothing=0.0,groups=1,tau_end=0.5,beta2=0.99
lr=0.2,augment=0,weight_decay=0.004,schedule=cosine,anneal=0.15,tau_b=1.0,group_tau=14.0,smoothing=0.1,groups=1,tau_end=0.5,beta2=0.99
lr=0.05,augment=1,weight_decay=0.001,schedule=cosine,anneal=0.15,tau_b=1.0,group_tau=28.0,smoothing=0.1,groups=1,tau_end=0.5,beta2=0.99
lr=0.05,augment=0,weight_decay=0.001,schedule=cosine,anneal=0.15,tau_b=2.0,group_tau=28.0,smoothing=0.1,groups=1,tau_end=0.5,beta2=0.999
lr=0.1,augment=0,weight_decay=0.001,schedule=cosine,anneal=0.35,tau_b=2.0,group_tau=28.0,smoothing=0.1,groups=1,tau_end=1.0,beta2=0.99
lr=0.1,augment=0,weight_decay=0.001,schedule=flat,anneal=0.35,tau_b=2.0,group_tau=28.0,smoothing=0.1,groups=0,tau_end=0.5,beta2=0.999
lr=0.1,augment=0,weight_decay=0.004,schedule=flat,anneal=0.35,tau_b=2.0,group_tau=28.0,smoothing=0.0,groups=1,tau_end=1.0,beta2=0.99
lr=0.1,augment=0,weight_decay=0.001,schedule=cosine,anneal=0.15,tau_b=1.0,group_tau=14.0,smoothing=0.0,groups=0,tau_end=1.0,beta2=0.999
"
small="
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.04,smoothing=0.0,weight_decay=0.0,augment=0
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.04,smoothing=0.0,weight_decay=0.002,augment=2
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.04,smoothing=0.1,weight_decay=0.0,augment=2
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.04,smoothing=0.1,weight_decay=0.002,augment=0
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.12,smoothing=0.0,weight_decay=0.0,augment=2
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.12,smoothing=0.0,weight_decay=0.002,augment=0
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.12,smoothing=0.1,weight_decay=0.0,augment=0
net=mnist-s,dataset=mnist,thresholds=1,steps=8000,seed=100,lr=0.12,smoothing=0.1,weight_decay=0.002,augment=2
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.04,smoothing=0.0,weight_decay=0.0,augment=0
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.04,smoothing=0.0,weight_decay=0.002,augment=2
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.04,smoothing=0.1,weight_decay=0.0,augment=2
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.04,smoothing=0.1,weight_decay=0.002,augment=0
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.12,smoothing=0.0,weight_decay=0.0,augment=2
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.12,smoothing=0.0,weight_decay=0.002,augment=0
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.12,smoothing=0.1,weight_decay=0.0,augment=0
net=mnist-s,dataset=fashion-mnist,thresholds=3,steps=8000,seed=100,lr=0.12,smoothing=0.1,weight_decay=0.002,augment=2
"
train s 8 steps=24000,$h,augment=1 steps=24000,$h,augment=2 $(sed "s/^lr/$s,lr/" <<< "$screen") \
    $s steps=12000,batch=64,$h $s,anneal=0 $s,wiring=random $s,estimator=decoupled,tau_b=2 $s,estimator=decoupled,tau_b=2,tau_f=0.1 \
    steps=6000,held_out=10000,seed=101 steps=6000,held_out=10000,seed=102 $s,augment=2 $s,augment=0 \
    steps=24000,$h,augment=0 &
m=net=cifar10-m,steps=8000,$h
train m 3 $m,augment=1 $m,augment=2 $small $m,augment=1,lr=0.04 \
    steps=3000,$h steps=3000,$h,pool=all steps=3000,$h,pool=product &
wait
