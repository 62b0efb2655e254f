// Package deploy holds what this process serves: the current manifest with a
// loaded guest for each of its modules, and the older guests that started runs
// are pinned to. It publishes and fetches nothing; bytes of an older module
// come through the Loader that the composition root gives.
//
// # Which declaration, which code
//
// A run's declaration (timeout, retry, retention, grants) is always that of the
// current manifest, so that an operator's correction reaches runs that have
// already started. Only the code is pinned, because a replay must walk the path
// it recorded: a run of a job with on_deploy = "pin" goes on with the digest of
// its first attempt, under the grants its module has today.
//
// # How long a guest stays open
//
// The current deployment holds its guests, and each attempt holds the one it
// runs. A guest that nobody holds any more is kept for a while, because the
// next pinned run may want it, and the longest unused ones are closed when
// there are more than Config.Keep.
package deploy
