// Command idemctl shows operators the records of a table, and settles open questions.
//
//	go install github.com/idem-go/idempotency/idem/cmd/idemctl@latest
//	export IDEM_TABLE=idempotency AWS_PROFILE=production
//	idemctl list --state unknown
//	idemctl explain 'acme#refund#qTkXkOfqmH0WKFmgJfVHPS6Rpb7gTlhXhxHjrHOJ0HY'
//	idemctl resolve --to failed --message "declined" --reason "see case 4711" 'acme#refund#qTk…'
//
// The README next to it shows every command with its output.
//
// Exit codes: 0 done, 1 refused or failed, 2 used wrongly, 3 the ledger differs.
package main
