# Sourced by path.sh where PYKALDIST_PYTHON names an interpreter: is it there, new enough, and has it the packages that pykaldist needs?
# Asked once (a tenth of a second), and again when its packages change; a script that finds the answer starts no process.
# Usage: . utils/shared/check_python.sh || exit 1

__python_answered() {
  local line key="" stamp=$1
  [ -f "$stamp" ] || return 1
  while IFS= read -r line; do
    if [ -z "$key" ]; then
      key=$line; [ "$key" = "$2" ] || return 1
    elif [ ! -e "$line" ] || [ "$line" -nt "$stamp" ]; then
      return 1
    fi
  done < "$stamp"
}

__check_python() {
  local why="" python key stamp
  python=$(type -P "$PYKALDIST_PYTHON")
  case $PYKALDIST_PYTHON in
    /*) [ ! -d "$PYKALDIST_PYTHON" ] || why="is a folder; name the interpreter in it, as $PYKALDIST_PYTHON/bin/python" ;;
    */*) why="depends on the folder one is in; give its whole path" ;;
  esac
  [ -n "$why$python" ] || why="is no program that can be run; correct the path, or unset it and .venv is made"
  key="$python ${PYENV_VERSION:-} $PYTHONPATH"
  stamp=$PYKALDIST_ROOT/.python-checked/${python//\//%}
  if [ -z "$why" ]; then
    ! __python_answered "$stamp" "$key" || return 0
    "$python" -c 'import sys; sys.exit(9 * (sys.version_info < (3, 10)))' 2>/dev/null
    case $? in
      0) "$python" -m pykaldist.environment "$stamp" "$key"; return ;;
      9) why="is $("$python" -V 2>&1), and 3.10 or later is needed; name another, or unset it and .venv is made" ;;
      *) why="does not run as a Python; correct the path, or unset it and .venv is made" ;;
    esac
  fi
  echo "path.sh: ERROR: PYKALDIST_PYTHON=$PYKALDIST_PYTHON $why." >&2
  return 1
}
__check_python
