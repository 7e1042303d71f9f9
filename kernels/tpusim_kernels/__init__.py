"""Numerics of tpusim: one jit-compiled JAX function per op and number family, and the primitives under them.

Pure functions of arrays, NCHW, static attributes keyword-only. Importing changes no JAX configuration: 64-bit integers
are enabled inside each call only (`base.kernel`). Integer kernels are exact integer arithmetic; where the chip's
definition rounds a float product, the code is written so that compiler fusion cannot change the result. Nothing of
tpusim is imported.
"""
