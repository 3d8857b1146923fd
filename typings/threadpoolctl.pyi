from contextlib import AbstractContextManager
from typing import Self

def threadpool_limits(
    limits: int, user_api: str | None = None
) -> AbstractContextManager[object]: ...

class LibController:
    @property
    def num_threads(self) -> int: ...

class _Limiter:
    def restore_original_limits(self) -> None: ...

class ThreadpoolController:
    lib_controllers: list[LibController]
    def select(self, *, user_api: str) -> Self: ...
    def limit(self, *, limits: int) -> _Limiter: ...
