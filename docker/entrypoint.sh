#!/bin/bash
# What the image starts: a command of Lakeward's as it stands; or, when Spark on Kubernetes starts an executor in it, that
# executor. Spark gives its place and size in the environment (KubernetesClientUtils, BasicExecutorFeatureStep).
set -euo pipefail

case "${1:-}" in
    executor) ;;
    driver) # what `spark-submit --deploy-mode cluster` starts
        echo 'error: Lakeward starts its driver itself, in client mode: it cannot be submitted in cluster mode' >&2
        echo '  to mend it: run `lakeward run` in a pod, with LAKEWARD_SPARK_MASTER=k8s://… (docker/kubernetes.yaml)' >&2
        exit 2
        ;;
    lakeward | python | bash | sh) exec "$@" ;;
    *) exec lakeward "$@" ;;
esac

home=$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
java=$(python -c 'from lakeward.java import java_home, wrapper_home; from lakeward.artifacts import cache_dir
print(wrapper_home(java_home(), cache_dir()))')/bin/java
options=()
number=0
while name=SPARK_JAVA_OPT_$number && [ -n "${!name+set}" ]; do
    options+=("${!name}")
    number=$((number + 1))
done
exec "$java" "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-}:${SPARK_CLASSPATH:-}:$home/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
