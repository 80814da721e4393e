"""What fixtures of model families have in common."""


def common(**sizes):
    """Arguments all families share, with sizes that no lane width divides."""
    out = dict(
        vocab_size=263,
        hidden_size=72,
        intermediate_size=104,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    out.update(sizes)
    return out


def rope(theta=10000.0, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def tiny(**sizes):
    """Smaller sizes: goldens of many families stay small."""
    out = common(hidden_size=40, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    out.update(sizes)
    return out


def v4_flat(config):
    """transformers 4: rope_theta, and rope_scaling where there is one."""
    out = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype")}
    parameters = dict(config["rope_parameters"])
    out["rope_theta"] = parameters.pop("rope_theta")
    out["rope_scaling"] = parameters if parameters["rope_type"] != "default" else None
    out["torch_dtype"] = "float32"
    out["transformers_version"] = "4.51.3"
    return out


class Fixture:
    def __init__(
        self,
        family,
        n_tokens,
        config,
        v4=None,
        gguf=False,
        multimodal=False,
        config_class=None,
        keep_none=(),
        qk_gain=None,
        wrapper=None,
        rewrite=None,
        salt="",
        head_norms=1.0,
        publish=None,
        compose=None,
    ):
        self.family, self.n_tokens, self.config = family, n_tokens, config
        self.v4, self.gguf, self.multimodal = v4, gguf, multimodal
        # A class of transformers, for families whose arguments go to it as they are.
        self.config_class = config_class
        # Keys that the class is given as `None`, which is not its default.
        self.keep_none = keep_none
        # Spread of queries and keys, where the usual one lets more layers amplify the rounding of 16 bits.
        self.qk_gain = qk_gain
        # Of a text model within another: the other's class without its ending, and arguments beside the text model's.
        self.wrapper = wrapper
        # What `config.json` becomes, for families that transformers computes with another one's class.
        self.rewrite = rewrite
        # Other random numbers: a choice of experts that a rounding of 16 bits turns over says nothing about code.
        self.salt = salt
        # The mean of the norms of heads of queries and keys.
        self.head_norms = head_norms
        # What becomes of the tensors, for families whose published files have another layout than transformers writes.
        self.publish = publish
        # Makes the model of the configuration, for families that transformers has the parts of and no class for.
        self.compose = compose
