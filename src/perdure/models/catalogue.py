"""List the known providers (address, key, and the extra that installs them); check model names.

This module loads no provider's library. To use another server with the protocol of a provider, set
the provider's ``*_BASE_URL`` to the address of the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from perdure.errors import WrongArgument
from perdure.errors.advice import install_of

Wire = Literal["openai_chat", "openai_responses", "anthropic", "google"]
"""The supported wire formats; each has a module in ``models.providers``."""

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
GOOGLE_URL = "https://generativelanguage.googleapis.com"
OPENROUTER_URL = "https://openrouter.ai/api/v1"


class Provider(msgspec.Struct, frozen=True):
    """A provider of models; its name is the part before the colon of a model's name.

    `package` is the module that the extra `extra` installs. The key comes from the first variable
    in `key_variables` that is set. The address comes from the first variable in `url_variables`
    that is set. A key is required only if `needs_key` is True and the address is `default_url`; a
    server at another address might need no key. If `key_name` is set, this provider uses the key of
    the provider `key_name`.
    """

    name: str
    title: str
    wire: Wire
    extra: str
    package: str
    default_url: str
    url_variables: tuple[str, ...]
    key_variables: tuple[str, ...]
    needs_key: bool = True
    key_name: str = ""

    def address(self, environment: Mapping[str, str]) -> str:
        """Return the provider's address from `environment`, or the default address."""
        for name in self.url_variables:
            url = environment.get(name, "").strip()
            if url:
                return url
        return self.default_url

    def wants_key(self, address: str) -> bool:
        """Return whether `address` requires a key."""
        return self.needs_key and address.rstrip("/") == self.default_url

    @property
    def install(self) -> str:
        """The command that installs the provider's package."""
        return install_of(self.extra)

    @property
    def remedy(self) -> str:
        """How to set up the provider."""
        install = self.install
        elsewhere = f"{self.url_variables[0]} for another server that speaks its protocol"
        if self.needs_key:
            return f"{install} and set {self.key_variables[0]} ({elsewhere})"
        return f"{install}; default address {self.default_url} (set {elsewhere})"


def _chat_server(
    name: str, title: str, url: str, prefix: str, *, needs_key: bool = True
) -> Provider:
    """Return the provider for a server with OpenAI's chat completions protocol."""
    return Provider(
        name,
        title,
        "openai_chat",
        "openai",
        "openai",
        url,
        (f"{prefix}_BASE_URL",),
        (f"{prefix}_API_KEY",),
        needs_key,
    )


_ALL = (
    _chat_server("openai", "OpenAI (chat completions)", OPENAI_URL, "OPENAI"),
    Provider(
        "openai-responses",
        "OpenAI (responses)",
        "openai_responses",
        "openai",
        "openai",
        OPENAI_URL,
        ("OPENAI_BASE_URL",),
        ("OPENAI_API_KEY",),
        key_name="openai",
    ),
    Provider(
        "anthropic",
        "Anthropic",
        "anthropic",
        "anthropic",
        "anthropic",
        ANTHROPIC_URL,
        ("ANTHROPIC_BASE_URL",),
        ("ANTHROPIC_API_KEY",),
    ),
    Provider(
        "google",
        "Google (Gemini API)",
        "google",
        "google",
        "google.genai",
        GOOGLE_URL,
        ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    _chat_server("openrouter", "OpenRouter", OPENROUTER_URL, "OPENROUTER"),
    _chat_server("ollama", "Ollama", "http://localhost:11434/v1", "OLLAMA", needs_key=False),
    _chat_server("vllm", "vLLM", "http://localhost:8000/v1", "VLLM", needs_key=False),
    _chat_server("llamacpp", "llama.cpp", "http://localhost:8080/v1", "LLAMACPP", needs_key=False),
    _chat_server("lmstudio", "LM Studio", "http://localhost:1234/v1", "LMSTUDIO", needs_key=False),
)

PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}
"""Maps names to providers, in the order in which they are listed."""

_NAME = re.compile(r"[^\s:]+:\s*\S.*", re.DOTALL)


def is_model_name(text: str) -> bool:
    """Return whether `text` has the form of a provider and a model; the model need not exist."""
    return _NAME.fullmatch(text) is not None


ECHO = "scripted:echo"
"""The offline model, whose answers say that it is not a language model."""


def model_missing(what: str) -> WrongArgument:
    """Return the error that says that `what` needs a model; the error lists the choices."""
    choices = ", ".join(f"{name}:NAME" for name in PROVIDERS)
    return WrongArgument(
        f"{what} needs a model, model='provider:name': one of {choices}, or {ECHO}, which works "
        "offline and is no language model",
        argument="model",
        takes="provider:name",
    )


def require_model_name(text: str, argument: str = "model") -> None:
    """Reject `text`, given as `argument`, unless it names a provider and one of its models.

    Raises: WrongArgument, whose message describes the valid form.
    """
    if is_model_name(text):
        return
    provider = text.strip().removesuffix(":")
    if provider in PROVIDERS:
        told = f"{text!r} names a provider, but no model of it: write {provider}:NAME"
    else:
        told = (
            f"{text!r:.80} names no provider and model: write provider:name, such as "
            f"anthropic:claude-opus-4-5, or {ECHO}, which works offline"
        )
    raise WrongArgument(told, argument=argument, takes="provider:name")
