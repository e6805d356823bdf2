// Package kills holds the tests of a compiled function on DynamoDB Local that
// hangs past its time-out or is killed anywhere: whatever was answered must be
// recorded and have taken effect once, and nothing that was not answered may be
// lost or done twice. The function is the command in the folder ledger.
package kills
