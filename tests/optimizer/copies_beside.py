"""Trees in which copies of trained params stand beside what is trained: averages, targets, a momentum encoder."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def layouts_with_copies(
    a: dict[str, Any], b: dict[str, Any], s: Any, t: Any, *, alike: bool
) -> dict[str, tuple[dict[str, Any], dict[str, str], set[str]]]:
    """By name: a tree of networks ``a`` and ``b`` with their states ``s`` and ``t``, whose each is, what may be asked.

    The copy has the very names and shapes of the state; what is trained stands in more params, or has more of them.
    """
    more, other = ({**net, "bn": {"mean": jnp.ones(4), "var": jnp.ones(4)}} for net in (a, b))
    parts = {"params/actor": "actor_opt_state", "params/critic": "critic_opt_state"}
    states = {"actor_opt_state": s, "critic_opt_state": t}
    both = {"actor": a, "critic": b}
    nested = {"actor": s, "critic": t}
    asked = {"params/actor", "params/critic"} if alike else set()
    return {
        "two networks in params, and a target": (
            {"params": both, "target_critic_params": b, **states},
            parts,
            asked,
        ),
        "two networks in params, and a target named behind": (
            {"params": both, "critic_target": b, **states},
            parts,
            asked,
        ),
        "two networks in params, and averages of all": (
            {"params": both, "ema": both, **states},
            parts,
            asked,
        ),
        "states in one dict, and a target": (
            {"params": both, "target_params": b, "opt_state": nested},
            {"params/actor": "opt_state/actor", "params/critic": "opt_state/critic"},
            asked,
        ),
        "a model of two, and a target": (
            {"model": both, "target_critic": b, "opt": nested},
            {"model/actor": "opt/actor", "model/critic": "opt/critic"},
            {"model/actor", "model/critic"} if alike else set(),
        ),
        "weights of two, and a momentum encoder": (
            {"weights": both, "momentum_encoder": b, "opt": nested},
            {"weights/actor": "opt/actor", "weights/critic": "opt/critic"},
            {"weights/actor", "weights/critic", "momentum_encoder"} if alike else set(),
        ),
        "a train state with a target of one network": (
            {"state": {"params": both, "opt_states": nested, "target_params": {"critic": b}}},
            {f"state/params/{one}": f"state/opt_states/{one}" for one in both},
            {f"state/params/{one}" for one in both} if alike else set(),
        ),
        "more than is trained, and an average": (
            {"model": more, "ema": a, "opt": s},
            {"model": "opt"},
            set(),
        ),
        "players with more than is trained": (
            {"gen": more, "disc": other, "gen_opt": s, "disc_opt": t, "ema_gen": a},
            {"gen": "gen_opt", "disc": "disc_opt"},
            set(),
        ),
        "players, and an average of each": (
            {"g_params": a, "d_params": b, "g_ema": a, "d_ema": b, "g_opt": s, "d_opt": t},
            {"g_params": "g_opt", "d_params": "d_opt"},
            set(),
        ),
        "networks by name, and a target": (
            {"actor_params": a, "critic_params": b, "target_critic_params": b, **states},
            {f"{one}_params": f"{one}_opt_state" for one in both},
            set(),
        ),
        "variables, and averages": (
            {"variables": {"params": a, "stats": {"mean": jnp.ones(4)}}, "ema_params": a, "opt_state": s},
            {"variables/params": "opt_state"},
            set(),
        ),
        "a train state, and averages in it": (
            {"state": {"params": a, "opt_state": s, "ema_params": a}},
            {"state/params": "state/opt_state"},
            set(),
        ),
        "a train state, and averages beside it": (
            {"state": {"params": a, "opt_state": s}, "ema_params": a},
            {"state/params": "state/opt_state"},
            set(),
        ),
        "a network and a number, and averages of the network": (
            {"params": {"net": a, "scale": jnp.ones(())}, "ema": a, "opt_state": s},
            {"params/net": "opt_state"},
            set(),
        ),
        "an adapter, and its average": (
            {"params": {"base": {"d2": jnp.ones((3, 5))}, "lora": a}, "ema_params": a, "opt_state": s},
            {"params/lora": "opt_state"},
            set(),
        ),
        "a backbone, and its average": (
            {"model": {"backbone": a, "frozen": {"d2": jnp.ones((3, 5))}}, "ema_model": a, "opt_state": s},
            {"model/backbone": "opt_state"},
            set(),
        ),
    }  # fmt: skip


COPIES = {
    "two networks in params, and a target": {"target_critic_params": "params/critic"},
    "two networks in params, and a target named behind": {"critic_target": "params/critic"},
    "two networks in params, and averages of all": {"ema": "params"},
    "states in one dict, and a target": {"target_params": "params/critic"},
    "a model of two, and a target": {"target_critic": "model/critic"},
    "weights of two, and a momentum encoder": {"momentum_encoder": "weights/critic"},
    "a train state with a target of one network": {"state/target_params/critic": "state/params/critic"},
    "more than is trained, and an average": {"ema": "model"},
    "players with more than is trained": {"ema_gen": "gen"},
    "players, and an average of each": {"g_ema": "g_params", "d_ema": "d_params"},
    "networks by name, and a target": {"target_critic_params": "critic_params"},
    "variables, and averages": {"ema_params": "variables/params"},
    "a train state, and averages in it": {"state/ema_params": "state/params"},
    "a train state, and averages beside it": {"ema_params": "state/params"},
    "a network and a number, and averages of the network": {"ema": "params/net"},
    "an adapter, and its average": {"ema_params": "params/lora"},
    "a backbone, and its average": {"ema_model": "model/backbone"},
}  # fmt: skip
"""Where the copies of each layout stand, and what they copy, where the two networks are of different sizes."""
