"""What answers look like: exactly the fields of the contract, and secrets masked."""
