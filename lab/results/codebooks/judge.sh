# What is left of the comparison, on one GPU: bash judge.sh DATA OUT SECONDS [PART ..]
# DATA holds speech.npz (benchmarks/speech.py prepare) and cifar-10-batches-bin; PYTHONPATH the source of
# vector-quantize-pytorch. The parts in the order of their worth, with the seconds that each takes at most:
# speech 500, images the rest (100 for the choice of --compile, then whole seeds), patches 60, cost 90, others 550.
here=$(dirname "$0") data=$1 out=$2 end=$(($(date +%s) + $3))
parts=${*:4}
export PYTHONPATH=$here/../../../src:$PYTHONPATH TORCHINDUCTOR_COMPILE_THREADS=4
left() { # the seconds until the end, at most $1
    local seconds=$((end - $(date +%s)))
    echo $((seconds < $1 ? seconds : $1))
}
run() { # a script of benchmarks/, with "--steps 2" and the like in TRY
    ${PYTHON:-python} -u "$here/../../../benchmarks/$1.py" "${@:2}" $TRY || echo "$* has failed" >&2
}
tokenisers() { run tokenisers "$1" "$data" "$out/runs.csv" "${@:2}"; }
faster() { # --compile, if the steps of the four methods took a tenth less time with it
    ${PYTHON:-python} -c "import csv, sys
ms = {'': [], 'true': []}
for row in csv.DictReader(open(sys.argv[1])):
    if (row['part'], row['codes']) == ('cost', '512') and row['estimator'] in ('Codebook', 'FSQ', 'FSP', 'SimVQ'):
        ms[row['compiled']].append(float(row['history.ms']))
print('--compile' if len(ms['true']) >= 4 and sum(ms['true'][-4:]) < 0.9 * sum(ms[''][-4:]) else '')" "$out/runs.csv"
}
mkdir -p "$out"
[ -e "$out/runs.csv" ] || cp "$here/runs.csv" "$out" # in which the judged runs find the search
nvidia-cuda-mps-control -d 2> /dev/null
for part in ${parts:-speech images patches cost others}; do
    [ "$(left 9999)" -gt 20 ] || break
    case $part in
        speech)
            run speech search "$data/speech.npz" "$out/speech.runs.csv" --seconds "$(left 110)"
            run speech judge "$data/speech.npz" "$out/speech.runs.csv" --seconds "$(left 390)" ;;
        images)
            tokenisers cost --sizes 512
            PYTHON="timeout 120 ${PYTHON:-python}" tokenisers cost --sizes 512 --compile
            tokenisers judge --seeds 2001 2002 2003 2004 --seconds "$(left 9999)" $(faster) ;;
        patches) tokenisers patches ;;
        cost) tokenisers cost --sizes 16384 262144 ;;
        others)
            tokenisers search --others --seconds "$(left 200)"
            tokenisers judge --others --seconds "$(left 350)" $(faster) ;;
    esac
done
