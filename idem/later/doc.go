// Package later accepts work now and lets a worker do it. [Accept] records the input under its
// key and hands the record's id to a queue, all in one transaction; [Work] claims the record and
// runs the handler with the input; [StatusOf] tells the client what has become of it, and
// [Cancel] takes back what no worker has begun.
//
// The state is Pending until a worker has come. After an attempt without an effect it is Released
// until the message brings a worker again. The input goes with the outcome. What no worker has come
// for in time a sweep of package reconcile ends as Failed with [protocol.CodeNotStarted].
//
// Package idemhttp serves all of it behind an HTTP route (LaterRoutes), and package idemlambda
// has the worker of a queue (SQSWorker).
package later
