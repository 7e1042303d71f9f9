"""Checks of a folder that TPU-MLIR's tools left: every step against the one before.

Input: the folder of `model_transform.py` and `model_deploy.py`. Output: one `Step` for each check, in order; the first
with a problem says where the folder stops to be right. A step whose module is not computed here is unchecked, never
passed.
"""
