"""The proof that silver equals the source at one position, chunk by chunk, and the repair of what does not."""
