// Package runbook holds the tests of infra/RUNBOOK.md: every command in it runs, on DynamoDB
// Local, against a record such as its section is about, and does what the section says; and a
// crashed refund is settled with nothing but these commands.
package runbook
