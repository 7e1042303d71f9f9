"""The process and its machine: files, documents and arrays of others, memory, threads, workers, and the terminal."""
