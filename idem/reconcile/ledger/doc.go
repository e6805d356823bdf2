// Package ledger compares what a payment provider did in a day with the records of that day. It finds what neither
// a call nor a sweep finds, because each of them trusts the record: an effect without a completed record, a
// completed record without an effect, another amount, and an effect that took place twice.
//
//	l, err := ledger.New(scanner, ledger.Options{
//		Operation: "refund",
//		Entries:   refundsOfTheProvider, // in any order
//		Expect: func(ctx context.Context, rec ledger.Record) (ledger.Expected, error) {
//			var refund Refund
//			body, err := rec.Result(ctx)
//			if err == nil {
//				err = json.Unmarshal(body, &refund)
//			}
//			return ledger.Expected{Effect: true, Value: refund.Amount + " " + refund.Currency}, err
//		},
//	})
//	report, err := l.Compare(ctx, from, to, ledger.Lines(file))
//
// A comparison changes no record. infra.NewLedger deploys one that runs each day, package lambda/comparing is its
// program, and idemctl ledger compares a file that the provider exports.
//
// # What is compared
//
// An entry belongs to a record by its token, which is the record's idem.Token unless [Options.Token] says
// otherwise, and without a token by its reference, which is that of idem.SetReference or of a resolution. An
// entry with another token than the record that has its reference was made under another key: both are missing. Each
// [Finding] has a kind:
//
//   - [MissingHere]: the provider did it, and no record of the operation is completed. If there is a record, the
//     finding names it and its state, also if it ended on an earlier day.
//   - [MissingThere]: the record expects an effect, and the provider has none.
//   - [Different]: value or state of the entry are not those of the record.
//   - [Doubled]: a further effect for a token or a reference, if the first one was on the day or the day before or
//     its record is of an earlier day and kept still, or a second record with the reference of another one. Entries
//     that are equal in all, with a reference, are one: pages of a provider may overlap.
//   - [Unread]: the provider did it, and the record or its result cannot be read, so that nothing was compared: the
//     Sealer is missing, the key may not be used, or the result was not recorded, as its Why says. It counts as a
//     difference.
//   - [Open]: the record has no outcome yet, or cannot be read, and the provider has nothing, or it has an entry of an
//     attempt that still runs. It is no difference. What that attempt records is compared with the entry when its
//     day is compared again, and not with the next day.
//   - [Undecided]: the record expects an effect, and its attempts began before the entries that were read, where
//     there may be one, or one more: such as an attempt which an operator has resolved days later. It is no
//     difference; compare a longer time to decide it.
//
// A report has record ids, tokens, references, and the values, states and times that were compared, and the errors of
// reading a record. It has nothing else of records and results.
//
// # The day
//
// The provider's clock is another one, and an effect near midnight is on its other day. So entries and records are
// read for an hour more on both sides ([Margin]), and match. Each finding is of one day alone: an
// entry belongs to the day of its time, a record to the day on which its outcome was recorded. The day must be over
// for an hour. A retry after midnight is on another day than the effect that it repeats. So entries of the day before
// are read too: a further one is found on its own day.
//
// Records must be kept for longer than the time from an hour before the day to the comparison, which is more
// than a day: set [idem.Operation].Retention to three days or more. Of a record that has been deleted nothing is left
// to compare. If a completed record of the day or later shows that records of the day may have been deleted, or if the
// table has no record of the operation while the provider has entries, Compare fails.
//
// # What it costs
//
// No index has records that have ended. Compare reads the whole table once, with all operations, parts of
// results, messages and changes: 131,000 read units for a gigabyte, which are $0.016 on demand in us-east-1, and
// four and a half minutes with [DefaultRate]. The functions lack the units that it takes. A result above 4 KB, after
// compression, costs Expect a further call where it asks for it. A result that package kmsseal has encrypted costs it
// a Decrypt of KMS, unless its data key is held, as 256 are. The table is read in no order of time: if it has results
// under many more data keys, that is a Decrypt for almost each result.
//
// Both sides are sorted. Up to 16 MB of each of two sorts are kept in memory, and the others lie in
// temporary files in os.TempDir: some 2 KB for each operation of the day. A filter takes another 16 MB: it has the
// names of all entries, so that of the records of earlier days few but those with an entry are sorted. The files
// have no names, so that the system removes them with the process; on Windows they have names, and stay if it is
// killed.
//
// [idem.Operation]: https://pkg.go.dev/github.com/idem-go/idempotency/idem#Operation
package ledger
