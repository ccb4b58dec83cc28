"""The project that `headrace pipeline init` begins: Spark Declarative Pipelines on a topic."""

from headrace.pipelines.template.project_files import write_project

__all__ = ["write_project"]
