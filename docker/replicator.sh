#!/bin/sh
# Run once by the MySQL image, when its data folder is new: the user that Lakeward reads with.
set -eu
mysql --user=root --password="$MYSQL_ROOT_PASSWORD" <<SQL
CREATE USER 'replicator'@'%' IDENTIFIED BY '$REPLICATOR_PASSWORD';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'replicator'@'%';
GRANT SELECT ON shop.* TO 'replicator'@'%';
SQL
