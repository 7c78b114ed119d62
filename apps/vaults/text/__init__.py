"""Readers of the three formats of vaults, without side effects; pure.

Nothing here opens a file, an address or a variable of the environment, and every reader ends
after work in proportion to the length of its text.
"""
