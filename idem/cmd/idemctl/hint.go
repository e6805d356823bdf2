package main

import (
	"errors"
	"slices"

	"github.com/alecthomas/kong"
	"github.com/aws/smithy-go"
	"github.com/jackc/pgx/v5/pgconn"
)

// grants are what a command needs to be allowed, by its name; all others need byReader.
var grants = map[string]string{
	"resolve": byOperator, "release": byOperator, "extend": byOperator, "forget": byOperator, "dead requeue": byOperator,
	"resend": byOperator, "pause": byOperator, "resume": byOperator,
	"check": "Table.GrantCheck", "ledger": "Table.GrantLedger and Table.GrantCheck",
}

const (
	byOperator = "Table.GrantOperator"
	byReader   = "Table.GrantReader (with --all also Table.GrantScanner and Table.GrantCheck)"
)

// hint says what to do about an answer of AWS or Postgres; empty if there is nothing more to say.
func hint(err error, command string) string {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && answer.Code == "42P01" {
		// There is no such table.
		return "Run the statements of pgstore.Schema, or see idemctl check."
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return ""
	}
	if denied(err) {
		grant, ok := grants[command]
		if !ok {
			grant = byReader
		}
		return "idemctl " + command + " needs " + grant + ": check --profile, or ask for it."
	}
	switch api.ErrorCode() {
	case "ResourceNotFoundException":
		return "Is it the right account and region? Check --profile and --region, and the name."
	case "ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId":
		return "The credentials are not valid, or not any more: log in again, or check --profile."
	}
	return ""
}

// denied reports whether AWS does not allow it.
func denied(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains([]string{"AccessDeniedException", "AccessDenied"}, api.ErrorCode())
}

// nameOf is the command that was meant, as far as it is known.
func nameOf(c *kong.Context) string {
	if c == nil || c.Selected() == nil {
		return ""
	}
	return c.Selected().Path()
}
