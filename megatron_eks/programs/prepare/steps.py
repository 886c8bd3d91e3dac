"""The steps of a preparation: what is there already, the run, its sidecars, the join of shards."""

from collections.abc import Sequence
from pathlib import Path

from megatron_eks.programs.prepare import inputs as prepare_inputs
from megatron_eks.programs.prepare import sidecar as prepare_sidecar
from megatron_eks.programs.prepare import tokenizer as prepare_tokenizer
from megatron_eks.programs.prepare.job import (
    Options,
    PrepareError,
    Shard,
    digest,
    document_prefix,
    failure,
    shard_prefix,
    usage,
)
from megatron_eks.programs.prepare.output import SKIPPED, Store
from megatron_eks.programs.prepare.reader import Reader
from megatron_eks.programs.prepare.run import Run
from megatron_eks.programs.prepare.sidecar import Entry
from megatron_eks.programs.program import Report, usage_error


class Steps:
    """One call of the program."""

    def __init__(self, options: Options, report: Report) -> None:
        self._options = options
        self._report = report
        self.run: Run | None = None
        """What a signal has to stop, once it is under way."""

    def prepare(self) -> None:
        """Do what is left to do, and put the summary's facts into the report."""
        options = self._options
        self._tokenizer = prepare_tokenizer.load(options.tokenizer, options.backend)
        self._check_tokens()
        self._sources = prepare_inputs.find(options.inputs)
        self._recipe = prepare_sidecar.recipe(options, self._sources, self._tokenizer)
        if options.resume and self._is_done(options.output_prefix, self._recipe_of(None)):
            self._summarise(options.output_prefix, already=True)
            return
        shard, recipe = options.shard, self._recipe_of(options.shard)
        already = bool(shard and options.resume and self._is_done(options.prefix, recipe))
        if not already:
            self._one(recipe)
        self._summarise(options.prefix, already=already)
        if shard is not None:
            self._join()

    def _one(self, recipe: str) -> None:
        options = self._options
        store = self._store(options.prefix)
        with store.locked():
            if not options.resume:
                store.clear()
            state = store.load(recipe)
            if state is not None and state.get("publishing"):
                store.finish()
                return
            reader = Reader(self._sources, options.shard)
            self.run = Run(options, reader, self._tokenizer, recipe, store)
            if state is not None:
                self.run.restore(state)
            self.run.run()
            keys = range(len(options.json_keys))
            inputs = [prepare_sidecar.inputs(reader, self.run.counts, key) for key in keys]
            self._publish(store, recipe, inputs, self.run.state())

    def _publish(
        self, store: Store, recipe: str, inputs: Sequence[list[Entry]], state: dict[str, object]
    ) -> None:
        """Write indexes and sidecars, and give all files their names; inputs are for each key."""
        is_whole = store.prefix == self._options.output_prefix
        if is_whole and not any(entry["documents"] for entry in inputs[0]):
            store.commit(state)
            skipped = prepare_sidecar.skipped(f"{store.directory}/{SKIPPED}")
            self._report.facts["skipped"] = skipped
            found, remedy = "the inputs hold no document", "correct --input or --json-key"
            raise failure(store.prefix, found, remedy)
        sidecars = {}
        for key, entries in zip(self._options.json_keys, inputs, strict=True):
            files = store.write_index(key)
            sidecars[key] = prepare_sidecar.build(
                recipe, self._recipe, key, entries, self._tokenizer, files=files
            )
        store.publish(state, sidecars)

    def _join(self) -> None:
        """Join the shards if they are all there; a process that comes second finds it done."""
        prefix, whole = self._options.output_prefix, self._recipe_of(None)
        store = self._store(prefix)
        shards = [Shard(index, self._options.shards) for index in range(self._options.shards)]
        if all(_are_of(self._sidecars(self._prefix(e)), self._recipe_of(e)) for e in shards):
            # No block is at hand: a signal ends the wait at once.
            self.run = None
            with store.locked(wait=True):
                state = store.load(whole)
                if state is not None and state.get("publishing"):
                    store.finish()
                # Whoever held the lock before may have joined them.
                if not self._is_there(prefix, whole):
                    self._merge(store, whole, shards)
                self._remove(shards)
        if self._is_there(prefix, whole):
            self._summarise(prefix)

    def _merge(self, store: Store, whole: str, shards: Sequence[Shard]) -> None:
        """Append shard to shard, so the bytes are those of a single process, and name the whole."""
        store.clear()
        store.open({})
        inputs: list[list[list[Entry]]] = []
        for prefix in map(self._prefix, shards):
            sidecars = self._sidecars(prefix)
            if not prepare_sidecar.are_whole(prefix, sidecars):
                found = "its files are not as long as its sidecar says"
                raise failure(prefix, found, "remove its .json and run this shard again")
            store.append_shard(prefix)
            inputs.append([sidecar["inputs"] for sidecar in sidecars])
        joined = [prepare_sidecar.joined(of_key) for of_key in zip(*inputs, strict=True)]
        self._publish(store, whole, joined, {"recipe": whole})

    def _remove(self, shards: Sequence[Shard]) -> None:
        """Remove the files of all shards; their content is in the whole."""
        for prefix in map(self._prefix, shards):
            for key in self._options.json_keys:
                for suffix in (".json", ".idx", ".bin"):
                    Path(f"{document_prefix(prefix, key)}{suffix}").unlink(missing_ok=True)
            Path(f"{prefix}.{SKIPPED}").unlink(missing_ok=True)

    def _is_done(self, prefix: str, recipe: str) -> bool:
        """Tell whether there is nothing left to do, after removing what an earlier run left."""
        store = self._store(prefix)
        if self._is_there(prefix, recipe):
            if store.has_leftovers:
                with store.locked(wait=True):
                    store.clear()
            return True
        if not prepare_sidecar.are_whole(prefix, self._sidecars(prefix)):
            return False
        if store.directory.exists():
            return False
        found = "the data set that is there has other inputs, another tokenizer or other options"
        remedy = "start without --resume to replace it, or take another --output-prefix"
        raise usage(prefix, found, remedy)

    def _is_there(self, prefix: str, recipe: str) -> bool:
        """Tell whether a data set is there already; it takes no lock, so its holder may ask."""
        sidecars = self._sidecars(prefix)
        return _are_of(sidecars, recipe) and prepare_sidecar.are_whole(prefix, sidecars)

    def _recipe_of(self, shard: Shard | None) -> str:
        part = {} if shard is None else {"shard": [shard.index, shard.count]}
        return digest({**self._recipe, **part})

    def _prefix(self, shard: Shard) -> str:
        return shard_prefix(self._options.output_prefix, shard)

    def _sidecars(self, prefix: str) -> list[Entry]:
        return prepare_sidecar.read(prefix, self._options.json_keys)

    def _store(self, prefix: str) -> Store:
        return Store(prefix, self._options.json_keys, self._tokenizer.token_type.str)

    def _check_tokens(self) -> None:
        """Refuse what the tokenizer cannot do, and say what may surprise."""
        options, tokenizer = self._options, self._tokenizer
        problems = [
            usage_error(
                option,
                f"the tokenizer names no {name}",
                f'set "{name}" in {options.tokenizer / "tokenizer_config.json"}',
            )
            for option, name, wanted, token in (
                ("--append-eod", "eos_token", options.append_eod, tokenizer.eod),
                ("--add-bos", "bos_token", options.add_bos, tokenizer.bos),
            )
            if wanted and token is None
        ]
        if problems:
            raise PrepareError(*problems)
        if tokenizer.adds and not options.add_bos:
            found = f"Megatron from 0.17 on writes {tokenizer.adds!r} for 'a' with this tokenizer"
            remedy = "give --add-bos if the model was trained with BOS"
            self._report.warning("BOS", found, remedy)
        if tokenizer.refused:
            remedy = "`tokenizers` does the work, slower"
            self._report.warning("gigatoken", tokenizer.refused, remedy)

    def _summarise(self, prefix: str, *, already: bool = False) -> None:
        self._report.facts |= {
            **prepare_sidecar.summary(prefix, self._sidecars(prefix)),
            "already_done": already,
            "backend": self._tokenizer.backend,
        }


def _are_of(sidecars: Sequence[Entry], recipe: str) -> bool:
    return bool(sidecars) and all(sidecar["recipe"] == recipe for sidecar in sidecars)
