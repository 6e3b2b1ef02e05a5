"""Tokenisers of images and of speech: the library's codebook against FSQ, FSP and SimVQ."""

from dst_lab.cards import MetricCard, TaskCard, register_metric, register_task
from dst_lab.report import Study

from studies.codebooks.claims import SPEECH, TASK, judge
from studies.codebooks.figures import FIGURES

register_task(TaskCard(name=TASK, title="tokeniser of images"))
register_task(TaskCard(name=SPEECH, title="tokeniser of speech"))
for _card in (
    MetricCard(name="psnr", label="test PSNR", unit="dB", direction=1),
    MetricCard(name="usage", label="codes in use on test data", unit="share", direction=1),
    MetricCard(name="ms", label="step", unit="ms", direction=-1),
    MetricCard(name="gib", label="peak of memory", unit="GiB", direction=-1),
    MetricCard(name="bits", label="bits per test image", direction=-1),
    MetricCard(name="train_bits", label="bits per training image", direction=-1),
):
    register_metric(_card)
CODEBOOKS = Study(
    name="codebooks",
    title="Tokenisers of three sizes",
    lead="CIFAR-10 through 8 x 8 tokens of one autoencoder, each token one of K codes: the library's codebook as it "
    "comes against FSQ, FSP and SimVQ, each tuned on held-out images; the four of a size are trained together on "
    "all 50,000 training images. Then a transformer over the tokens. And frames of speech, in single and four stages.",
    notes={"quick": "Of five seeds that were asked for one was run, and the transformer was trained for a short time."},
    tasks=(TASK, SPEECH),
    rules=(judge,),
    questions={
        "T1": "Is the codebook ahead?",
        "T2": "Are its codes in use?",
        "T3": "Are its tokens worth their bits?",
        "T4": "Is the codebook ahead on speech?",
    },
    figures=FIGURES,
    results=False,
    first=("quality",),
    parts={"The second stage": ["rate-distortion", "samples"], "Reconstructions": ["reconstructions"]},
)
