package main

// laterRows are mistakes in what is accepted now and done later.
var laterRows = []mutant{
	{
		id: "worker-claims-what-has-expired", in: "idem/protocol",
		from:  `case absent && work:`,
		to:    `case rec == nil && work:`,
		wrong: "a message that comes late runs work again whose outcome has expired",
	},
	{
		id: "call-runs-accepted-work", in: "idem/protocol",
		from:  `case !work && (accepted || rec.State == Pending):`,
		to:    `case !work && rec.State == Pending:`,
		wrong: "a repeated request runs work itself that a worker has begun and released",
	},
	{
		id: "accepted-over-the-uncertain", in: "idem/protocol",
		from:  `if repeatable || !rec.Uncertain { return Decision{DoTakeOver, InProgress}`,
		to:    `if repeatable || !rec.Interrupted() { return Decision{DoTakeOver, InProgress}`,
		wrong: "accepting an operation for later makes it run again although it may have taken effect",
	},
	{
		id: "waiting-work-cannot-be-parked", in: "idem/protocol",
		from:  `if rec.State == InProgress || rec.State == Released || rec.State == Pending {`,
		to:    `if rec.State == InProgress || rec.State == Released {`,
		wrong: "accepted work that must not run is never parked, and no person hears of it",
	},
	{
		id: "waiting-work-is-released", in: "idem/protocol",
		from:  `waits := (rec.State == Pending || rec.State == Released && rec.Accepted()) && ev.To != Released`,
		to:    `waits := rec.State == Pending || rec.State == Released && rec.Accepted()`,
		wrong: "a resolution releases work that nobody has begun, and its doubt or its input is lost",
	},
	{
		id: "waiting-work-is-due-at-once", in: "idem/protocol",
		from:  `if e.State == Pending { next.Due = e.Due }`,
		to:    ``,
		wrong: "the next sweep ends accepted work before its worker comes",
	},
	{
		id: "worker-with-an-old-input", in: "idem/protocol",
		from:  `case work && ev.Ticket != "" && rec.Ticket != ev.Ticket:`,
		to:    `case work && ev.Ticket != "" && rec.Ticket == "":`,
		wrong: "a worker runs work that was accepted anew with the input of the time before",
	},
	{
		id: "acceptance-counts-as-attempt", in: "idem",
		from:  `rec.Attempt--`,
		to:    ``,
		wrong: "work that waits says that an attempt was made, and its worker's is the second",
	},
	{
		id: "acceptance-clears-the-doubt", in: "idem",
		from:  `c.a.later.due(c.at), c.a.unwritten.Record.Uncertain`,
		to:    `c.a.later.due(c.at), false`,
		wrong: "what an earlier attempt may have done is forgotten once the operation is accepted for later",
	},
	{
		id: "work-waits-an-hour", in: "idem",
		from:  `return now.Add(cmp.Or(l.StartWithin, protocol.DefaultStartWithin))`,
		to:    `return now.Add(cmp.Or(protocol.DefaultStartWithin, l.StartWithin))`,
		wrong: "a sweep ends work that may wait for a day after an hour",
	},
	{
		id:    "begun-work-is-cancelled",
		from:  `case rec.State != idem.Pending || rec.Uncertain || rec.Progressed():`,
		to:    `case rec.State != idem.Pending || rec.Progressed():`,
		wrong: "work whose earlier attempt may have taken effect is told as cancelled",
	},
	{
		id:    "cancellation-expires-at-once",
		from:  `max(rec.Retention, leastRetention)`,
		to:    `rec.Retention`,
		wrong: "with a short retention a cancelled request can be made again while its message still waits",
	},
	{
		id:    "worker-in-atomic-mode",
		from:  `op.Mode = idem.Reserved`,
		to:    ``,
		wrong: "two workers run the same work at once, since neither claims it first",
	},
	{
		id:    "expired-work-has-a-status",
		from:  `if rec.Expired(e.Now()) { return nil, ErrExpired }`,
		to:    ``,
		wrong: "a status shows an outcome that does not count any more, until the store deletes it",
	},
}
