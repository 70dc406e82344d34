"""Random plans over random trees, held against flat NumPy, with Orbax's own restore as the judge.

``trees`` and ``optimizers`` make a state, ``layouts`` save and restore it, ``drawers`` draw edits, ``reference`` (with
``patterns``, ``values``, ``places`` and ``twins``) says what the edits must do, and ``judge`` compares. Nothing but
``judge`` touches the program.
"""
