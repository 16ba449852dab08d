"""Instructor: an answer as an object of a class."""

from typing import Literal

import instructor
import pytest
from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    """A city, as a small model can fill it in."""

    size: Literal["small", "large"]
    is_capital: bool


# Its other modes ask for any JSON and hope that the model reads the schema.
@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_an_answer_is_an_object(url, mode):
    client = instructor.from_openai(OpenAI(base_url=url, api_key="none", max_retries=0), mode=mode)
    city = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "Paris is a large city of 2000000 people."}],
        response_model=City,
        temperature=0,
        max_tokens=120,
        max_retries=0,
    )
    assert isinstance(city, City)


def test_an_object_is_streamed_as_it_grows(url):
    client = instructor.from_openai(
        OpenAI(base_url=url, api_key="none", max_retries=0), mode=instructor.Mode.TOOLS
    )
    steps = list(
        client.chat.completions.create_partial(
            model="smollm2",
            messages=[{"role": "user", "content": "Paris is a large city of 2000000 people."}],
            response_model=City,
            temperature=0,
            max_tokens=120,
            max_retries=0,
        )
    )
    assert len(steps) > 1
    assert steps[-1].size in ("small", "large")
