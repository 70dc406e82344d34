"""The oracle of training: what an optimizer's own training says of a slot, against what an edit makes of it.

An optimizer is fed gradients g and params p from its first step on; and once more g/a and a·p. The state of the second
training is what `surgery rescale --by a` of the first must give, or the preview must say that it does not.

``optimizers`` draws the optimizers, ``cases`` what is tried, ``training`` trains, ``editing`` lets surgery edit,
``verdicts`` compares. ``python -m oracle`` (``make oracle``) tries everything.
"""
