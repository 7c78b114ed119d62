"""The texts of vaults: reading three formats without doing anything else; pure.

Nothing here opens a file, an address or a variable of the environment, and every reader ends
after work in proportion to the length of its text.
"""
