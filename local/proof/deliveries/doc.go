// Package deliveries holds the tests of the event sources' handlers as compiled
// functions: a real queue server, the real SDK clients, the poller of package
// queuepoller, DynamoDB Local, and instances that fail in every way and are killed.
//
// The function is the command in the folder internal/orders. What it shall do with
// each message it asks the test, which so knows every run and every effect, also of
// instances that are killed.
package deliveries
