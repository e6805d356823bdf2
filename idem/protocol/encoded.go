package protocol

// Encoded is a result as later calls read it, for those who record one from outside.
type Encoded struct {
	// Body is the result, encoded; Codec names how, empty for JSON.
	Body  []byte
	Codec string
	// ResponseVersion is the caller's version of the result's schema, at most 2^31-1; zero for none.
	ResponseVersion int
	// Check shows that later calls can read Body. Nil stands for any JSON.
	Check func(body []byte) error
	// Failed says that a handler with this result fails, which undoes its steps: an HTTP refusal.
	Failed bool
}
