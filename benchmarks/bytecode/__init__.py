"""Which tools read which bytecode: files of tpusim and of real MLIR tools, through every promised pair."""
