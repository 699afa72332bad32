"""The command line of the text tools: `run.py <name> <arguments>`, started by `utils/text_tools`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.flags.isolated:  # `python -I -S run.py`: neither the project nor packages are where Python looks
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import Tool

DATA_DIRS = "data_dirs"  # the module whose tools need packages: `utils/data_tools` starts them
MODULES = {
    "lists": ("filter_scp.pl", "filter_scps.pl", "utt2spk_to_spk2utt.pl", "spk2utt_to_utt2spk.pl", "split_scp.pl", "subset_scp.pl",
              "shuffle_list.pl", "convert_ctm.pl", "data/extend_segment_times.py"),
    "symbols": ("sym2int.pl", "int2sym.pl", "apply_map.pl", "add_disambig.pl", "validate_text.pl", "pinyin_map.pl",
                "lang/check_phones_compatible.sh"),
    "lexicon": ("add_lex_disambig.pl", "lang/add_lex_disambig.pl", "make_lexicon_fst.pl", "lang/make_lexicon_fst.py",
                "make_lexicon_fst_silprob.pl", "lang/make_lexicon_fst_silprob.py"),
    "grammar": ("eps2disambig.pl", "s2eps.pl", "remove_oovs.pl", "find_arpa_oovs.pl", "make_unigram_grammar.pl", "map_arpa_lm.pl"),
    "phones": ("../steps/nnet3/chain/e2e/text_to_phones.py", "../steps/nnet3/chain/e2e/compute_biphone_stats.py"),
    "segmentation": ("segmentation.pl",),
    "storage": ("ln.pl", "make_absolute.sh", "create_split_dir.pl", "create_data_link.pl", "summarize_warnings.pl"),
    "prototypes": ("nnet/make_nnet_proto.py", "nnet/make_cnn_proto.py", "nnet/gen_splice.py", "nnet/gen_dct_mat.py",
                   "nnet/gen_hamm_mat.py"),
    DATA_DIRS: ("copy_data_dir.sh", "data/copy_data_dir.sh", "combine_data.sh", "data/combine_data.sh", "subset_data_dir_tr_cv.sh",
                "split_data.sh", "data/split_data.sh", "perturb_data_dir_speed.sh", "data/perturb_data_dir_speed.sh",
                "perturb_data_dir_speed_3way.sh", "data/perturb_data_dir_speed_3way.sh", "data/perturb_data_dir_volume.sh",
                "data/perturb_speed_to_allowed_lengths.py",
                "data/modify_speaker_info.sh", "data/remove_dup_utts.sh", "data/convert_data_dir_to_whole.sh", "data/limit_feature_dim.sh",
                "data/subsegment_data_dir.sh", "data/extract_wav_segments_data_dir.sh",
                "data/get_utt2dur.sh", "data/get_reco2dur.sh", "data/get_utt2num_frames.sh",
                "data/get_num_frames.sh", "data/get_frame_shift.sh", "data/get_segments_for_data.sh"),
}
_BASE_NAMES_OF_DATA_DIRS = {os.path.basename(name) for name in MODULES[DATA_DIRS]}


def tool_named(name: str) -> Tool | None:
    """The tool of a file name in `utils`, with or without its folder; only its module is imported."""
    for module, names in MODULES.items():
        for known in names:
            if os.path.basename(known) == os.path.basename(name):
                function = os.path.basename(known).replace(".", "_")
                return getattr(__import__(f"pykaldist.io.text_tools.{module}", fromlist=[function]), function)
    return None


def main(name: str, arguments: list[str]) -> int:
    """Run a tool; returns the exit status."""
    name = os.path.basename(name)
    sys.argv[0] = name
    tool = tool_named(name)
    if tool is None:
        print(f"{name}: ERROR: there is no such tool.", file=sys.stderr)
        return 1
    usage = f"Usage: {'' if tool.usage.startswith('steps/') else 'utils/'}{tool.usage.strip()}"
    if arguments[:1] in (["--help"], ["-h"]):
        print(usage)
        return 0
    if name in _BASE_NAMES_OF_DATA_DIRS and arguments and "PYKALDIST_TOLD" not in os.environ:
        print(f"{name}: {tool.function.__doc__}", file=sys.stderr, flush=True)  # for these may take a while
    try:
        options, rest = tool.parse(arguments)
        if len(rest) < tool.least or -1 < tool.most < len(rest):
            print(usage, file=sys.stderr)
            return 1
        output = tool.function(options, *rest)
        if output is not None and not isinstance(output, int):
            sys.stdout.buffer.writelines(output)
        sys.stdout.flush()
        return output if isinstance(output, int) else 0
    except UserError as error:
        message = str(error)
    except KeyboardInterrupt:
        os._exit(130)
    except BrokenPipeError:
        os._exit(141)  # as a program that SIGPIPE ends
    except OSError as error:
        where = error.filename or "standard input or output"
        message = f"{where}: {error.strerror or error}; check the path."
    with_commands = __import__("pykaldist.cures", fromlist=["with_commands"]).with_commands  # which takes time to import
    print(f"{name}: ERROR: {with_commands(message, arguments)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
