package main

import (
	"cmp"
	"net/http"
	"os"

	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// startConsole serves the operators' pages of the records' table. What they read is not
// counted: no request makes them do so.
func (s *stack) startConsole() error {
	client, err := newDynamoDB(s.db.Endpoint())
	if err != nil {
		return err
	}
	store, err := dynamostore.NewAdminStore(client, recordsTable, nil)
	if err != nil {
		return err
	}
	r, err := reconcile.New(store, nil)
	if err != nil {
		return err
	}
	pages, err := console.New(r, &console.Options{Who: who})
	if err != nil {
		return err
	}
	s.console, err = s.listen(0, pages)
	return err
}

// who names the user who runs the stack, so that the history of a record has a person's name.
func who(r *http.Request) (string, error) {
	name, err := console.ThisMachine(r)
	return cmp.Or(os.Getenv("USER"), name), err
}
