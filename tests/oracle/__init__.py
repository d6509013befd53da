"""VMAF written a second time, in plain numpy: what libvmaf's scores are checked against.

score.py    frames in, features and scores out
vif.py      how much of the reference's information the distorted picture still carries, at four scales
adm.py      how much of its detail is left, as far as an eye would see it
motion.py   how much the reference moves
svr.py      features to a score
model.py    the numbers of a model, read out of the engine itself
planes.py   pictures as arrays, and filters over them
clips.py    clips to score, each with a distorted version
libvmaf.py  the engine's own answer for a clip

It follows the published algorithms in float64, where libvmaf computes in fixed point. Rounding is followed only where
a score would show it, and the place that does so says why. Nothing of vmafx is imported here.

libvmaf 2.3.0 itself goes wrong at some widths of 8-bit clips, where its AVX2 code runs over the end of a row: VIF when
1 to 8 columns are left after sixteens (8 pixels of the picture are spoilt), ADM when the width is a multiple of 8 under
240, or an odd multiple under 390. Neither shows at the sizes of films; test clips are best 256 wide, or of 10 bits.
"""
