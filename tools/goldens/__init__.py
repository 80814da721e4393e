"""Common parts of the fixtures of model families."""


def common(**sizes):
    """Arguments of all families, with sizes that are no multiple of a lane width."""
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
    """Smaller sizes, to keep the goldens of many families small."""
    out = common(hidden_size=40, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    out.update(sizes)
    return out


def v4_flat(config):
    """Spelling of transformers 4: rope_theta, and rope_scaling if there is one."""
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
        attention="eager",
    ):
        self.family, self.n_tokens, self.config = family, n_tokens, config
        self.v4, self.gguf, self.multimodal = v4, gguf, multimodal
        # A configuration class of transformers, for families whose arguments go to it unchanged.
        self.config_class = config_class
        # Keys that the class gets as `None`, although that is not its default.
        self.keep_none = keep_none
        # Spread of queries and keys, if with the usual one many layers amplify the rounding of 16 bits.
        self.qk_gain = qk_gain
        # For a text model within a wrapper: the wrapper's class without its suffix, and its arguments besides the text model's.
        self.wrapper = wrapper
        # Makes `config.json`, for families that transformers computes with another family's class.
        self.rewrite = rewrite
        # Selects other random numbers, if rounding to 16 bits changes a choice of experts: that says nothing about the code.
        self.salt = salt
        # Mean of the weights of the norms of query and key heads.
        self.head_norms = head_norms
        # Converts the tensors, for families whose published files have another layout than transformers writes.
        self.publish = publish
        # The implementation of attention; Falcon's eager one adds biases by distance twice.
        self.attention = attention
        # Makes the model from the configuration, for families of which transformers has the parts but no class.
        self.compose = compose
