# Sourced by every script: finds or makes .venv beside this file, and puts pykaldist, utils/, utils/shared/ and src/bin/ (Kaldi's programs) on PATH.
# PYKALDIST_PYTHON=/some/python uses that interpreter instead, with the packages it has (a cluster's own torch, say; PYTHONPATH's too).
PYKALDIST_ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
export PYKALDIST_ROOT
if [ -z "${PYKALDIST_PYTHON:-}" ]; then
  bash "$PYKALDIST_ROOT/utils/setup_venv.sh" || exit 1
  export PATH="$PYKALDIST_ROOT/.venv/bin:$PATH" PYTHONPATH=""
fi
case ":$PATH:" in *":$PYKALDIST_ROOT/utils/shared:"*) ;; *) export PATH="$PYKALDIST_ROOT/utils:$PYKALDIST_ROOT/utils/shared:$PYKALDIST_ROOT/src/bin:$PATH" ;; esac
case "${PYTHONPATH:-}:" in "$PYKALDIST_ROOT:"*) ;; *) PYTHONPATH="$PYKALDIST_ROOT${PYTHONPATH:+:$PYTHONPATH}" ;; esac
export PYTHONPATH LC_ALL=C.UTF-8
export OPENBLAS_NUM_THREADS=1  # jobs are processes; a second thread of numpy only gets in their way
[ -z "${PYKALDIST_PYTHON:-}" ] || . "$PYKALDIST_ROOT/utils/shared/check_python.sh" || exit 1
