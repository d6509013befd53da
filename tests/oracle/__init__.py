"""An independent implementation of VMAF in numpy, to check the scores of libvmaf.

score.py    features and scores of frames
vif.py      Visual Information Fidelity at four scales
adm.py      Detail Loss Metric (ADM)
motion.py   motion of the reference
svr.py      support vector regression from features to a score
model.py    the parameters of a model, extracted from the engine
planes.py   pictures as arrays, and filters on them
clips.py    deterministic test clips, each with a distorted version
libvmaf.py  features and scores of a clip by the engine itself

It follows the published algorithms in float64, while libvmaf uses fixed point. It imitates libvmaf's rounding only
where scores depend on it, and says why there. It imports nothing of vmafx.

libvmaf 2.3.0 is wrong at some widths of 8-bit clips, where its AVX2 code reads beyond the end of a row: VIF if the
width modulo 16 is 1 to 8 (8 pixels are affected), ADM if the width is a multiple of 8 below 240, or an odd multiple of
8 below 390. Common film sizes are not affected; test clips should be 256 pixels wide or have 10 bits.
"""
