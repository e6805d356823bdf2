// Package console shows operators in a browser what is open, explains each record, and lets
// them decide about it.
//
//	h, err := console.New(reconciler, &console.Options{Prefix: "/idem", Who: who})
//	mux.Handle("/idem/", h)
//
// [Options.Who] tells who makes a request. With [ThisMachine] only requests from the own
// machine are answered, under a loopback name such as 127.0.0.1 or localhost.
//
// Every change is made in two steps. The first page shows the record, what the decision
// does, and asks for the reason, and for the provider's answer if an effect can take place a second time
// or an earlier decision is replaced. Its form carries the write of the record that it shows, and
// a token that only this handler makes. The change is made only if the record has not been
// written since: a second click, an old tab and a race with the attempt's own late outcome
// change nothing. Who changed what, when and why is kept with the record.
//
// Results, the callers' values and the messages of errors are shown only on request. Pages load
// nothing from elsewhere. They work without JavaScript; with it they follow the table
// without being reloaded.
package console
