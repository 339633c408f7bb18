# What the scripts share: a virtual environment in .venv, Java, Maven. Sourced, never run.
# Every function says what it does before it does it, and ends the script when it cannot.

set -eu
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${ASYNCBROKER_VENV:-$ROOT/.venv}
CACHE=$ROOT/.cache
cd "$ROOT"

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# apt_install PACKAGE...: Debian's packages, when we may install them.
apt_install() {
  command -v apt-get > /dev/null || die "$* is needed, and there is no apt-get to install it with"
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null || die "$* is needed: install it as root (apt-get install $*)"
    as_root=(sudo)
  fi
  say "installing $* with apt-get"
  "${as_root[@]}" apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@" >&2
}

# find_python: python3 if it is 3.10 or newer, else the newest that is; PYTHON overrides.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "Python 3.10 or newer is needed"
}

# need_venv EXTRA: .venv with this checkout installed in place, and the extra's packages. That builds
# the compiled extensions as well, if there is a compiler.
need_venv() {
  local extra=$1 python stamp wanted
  stamp=$VENV/.installed-$extra
  wanted=$(cat pyproject.toml setup.py protocol/_records*.[ch] asyncbroker/log/_writer.c "${BASH_SOURCE[0]}" | cksum)
  if [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2> /dev/null)" = "$wanted" ]; then return; fi
  if [ ! -x "$VENV/bin/python" ]; then
    python=$(find_python)
    say "creating $VENV with $("$python" --version)"
    "$python" -m venv "$VENV" 2> /dev/null || { rm -rf "$VENV"; apt_install python3-venv; "$python" -m venv "$VENV"; }
  fi
  say "installing asyncbroker[$extra] into $VENV (a few minutes the first time)"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
  "$VENV/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --editable ".[$extra]"
  # PySpark finds sources by their modules' files, of which an install in place leaves none to see.
  ln -sf "$ROOT/spark/pyspark_asyncbroker.py" \
    "$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/"
  echo "$wanted" > "$stamp"
}

java_is_new_enough() {
  local version
  version=$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

# need_java: JAVA_HOME with Java 17 or newer, found or installed.
need_java() {
  if [ -n "${JAVA_HOME:-}" ] && java_is_new_enough "$JAVA_HOME/bin/java"; then return; fi
  if ! { command -v java > /dev/null && java_is_new_enough java; }; then
    apt_install openjdk-17-jdk-headless
  fi
  JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
  export JAVA_HOME
}

# resolve_classpath POM VERSION FILE: resolves what a pom asks for from Maven, once, and writes its
# classpath to FILE.
resolve_classpath() {
  local pom
  if [ -s "$3" ]; then return; fi
  need_java
  command -v mvn > /dev/null || apt_install maven
  say "resolving $1 in version $2 from Maven"
  mkdir -p "$CACHE"
  pom=$(mktemp -d)
  sed "s/@VERSION@/$2/" "scripts/$1" > "$pom/pom.xml"
  mvn -q -B -f "$pom/pom.xml" dependency:build-classpath -DincludeScope=runtime \
    -Dmdep.outputFile="$3.tmp" >&2
  rm -rf "$pom"
  mv "$3.tmp" "$3"
}

# need_kafka_classpath: Apache Kafka's jars; prints the file that holds the classpath.
KAFKA_VERSION=${KAFKA_VERSION:-4.3.1}
need_kafka_classpath() {
  resolve_classpath kafka-pom.xml "$KAFKA_VERSION" "$CACHE/kafka-$KAFKA_VERSION.classpath"
  echo "$CACHE/kafka-$KAFKA_VERSION.classpath"
}

# need_connector_classpath: the same for Spark's own Kafka connector.
CONNECTOR_VERSION=${CONNECTOR_VERSION:-4.2.0}
need_connector_classpath() {
  resolve_classpath spark-kafka-pom.xml "$CONNECTOR_VERSION" \
    "$CACHE/spark-kafka-$CONNECTOR_VERSION.classpath"
  echo "$CACHE/spark-kafka-$CONNECTOR_VERSION.classpath"
}

# need_other_pyspark VERSION: that PySpark in a folder of its own, to be put first on PYTHONPATH;
# prints the folder.
PYSPARK_BEFORE=${PYSPARK_BEFORE:-4.2.0}
need_other_pyspark() {
  local folder=$CACHE/pyspark-$1
  if [ ! -e "$folder/.installed" ]; then
    say "installing PySpark $1 into .cache"
    rm -rf "$folder"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --target "$folder" \
      "pyspark==$1" >&2
    touch "$folder/.installed"
  fi
  echo "$folder"
}
