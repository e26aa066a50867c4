
# The mutex together with services on Curator and kazoo: both directions, order, ends of
# all kinds, and strange znodes.

use strict;
use warnings;

use Contender;
use InteropPeer;
use ZklockTest;

my $zk = ZooKeeper->new;
my $curator = InteropPeer->curator($zk, session_timeout => 8);
my $kazoo = InteropPeer->kazoo($zk, session_timeout => 8);
my %settings = ('zklock.tenure' => 0, 'zklock.linger' => 0, 'zklock.connection_timeout' => '1min');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);

sub zklock { my ($node) = @_; return Contender->zklock($node->backend, $node); }
sub curator { my ($actor) = @_; return Contender->foreign($curator->actor($actor), 'mutex'); }
sub kazoo { my ($actor, $kind) = @_; return Contender->foreign($kazoo->actor($actor), $kind); }

my ($a1, $a2, $b1) = map { zklock($_) } $node_a, $node_a, $node_b;
my ($c1, $c1b, $c2) = map { curator($_) } 'c1', 'c1.b', 'c2';
my ($k1, $k2) = map { kazoo($_, 'mutex') } 'k1', 'k2';
my $k3 = kazoo('k3', 'patterns');

# Queue, and wait until the wait has begun.
sub queue { my ($path, $contender) = @_; return $contender->queue($zk, $path); }
sub queue_of { my ($path) = @_; return Contender::queue_of($zk, $path); }

# zklock answers before the znode of a try, or of a release, is gone.
sub wait_for_znodes { my ($path, $n) = @_; return $zk->wait_for_children("/zklock$path", $n); }

# --- both directions ---

foreach (
	[ 'Curator', $c1 ],
	[ q{kazoo with Curator's names}, $k1 ],
	[ 'kazoo with extra_lock_patterns', $k3 ])
{
	my ($who, $other) = @$_;
	my $path = '/' . $who =~ s/\W+/_/gr;

	is($other->acquire($path), 't', "$who holds");
	is($a1->try($path), 'f', "$who holds: a try of zklock");
	is($a1->acquire($path, 200), 'f', "$who holds: zklock with a timeout");
	queue($path, $a1);
	ok(!$a1->is_done, "$who holds: zklock waits");
	is($other->release($path), 't', "$who releases");
	is($a1->answer, 't', "$who releases: zklock has it");

	is($other->try($path), 'f', "zklock holds: a try of $who");
	is($other->acquire($path, 200), 'f', "zklock holds: $who with a timeout");
	wait_for_znodes($path, 1);
	queue($path, $other);
	queue($path, $b1);
	ok(!$other->is_done, "zklock holds: $who waits");
	$node_a->wait_until_contended($path);
	is($a1->release($path), 't', 'zklock releases');
	is($other->answer, 't', "zklock releases: $who has it");
	ok(!$b1->is_done, "zklock releases: and not the other server, which came later");
	$other->release($path);
	is($b1->answer, 't', "$who releases: the other server has it");
	$b1->release($path);
	wait_for_znodes($path, 0);
}

# Without the patterns, kazoo's lock waits only for kazoo, and Curator does not see it.  zklock can
# only do its own part: it waits for kazoo's.
my $stock = kazoo('k1', 'stock');
is($stock->acquire('/stock'), 't', 'stock kazoo holds');
is($a1->try('/stock'), 'f', 'stock kazoo holds: zklock is refused');
wait_for_znodes('/stock', 1);
is($c1->try('/stock'), 't', 'stock kazoo holds: Curator is not');
$c1->release('/stock');
queue('/stock', $a1);
$stock->release('/stock');
is($a1->answer, 't', 'stock kazoo releases: zklock has it');
is($stock->try('/stock'), 't', 'zklock holds: stock kazoo does not know');
$stock->release('/stock');
is($a1->party->query(q{SELECT zk_lock_is_held('/stock')}), 't', 'zklock holds on');
$a1->release('/stock');

# Re-entry in both.
is($c1->acquire('/again'), 't', 'Curator holds') foreach 1 .. 2;
queue('/again', $a1);
$c1->release('/again');
ok(!$a1->is_done, 'Curator has released once of twice');
$c1->release('/again');
is($a1->answer, 't', 'twice');
is($a1->acquire('/again'), 't', 'zklock holds twice');
queue('/again', $c1);
$a1->release('/again');
ok(!$c1->is_done, 'zklock has released once of twice');
$a1->release('/again');
is($c1->answer, 't', 'twice');
$c1->release('/again');

# Transaction scope.
$a1->party->query(q{BEGIN; SELECT zk_xact_lock_acquire('/xact')});
is($c1->try('/xact'), 'f', 'in a transaction: held');
queue('/xact', $c1);
$a1->party->query('ROLLBACK');
is($c1->answer, 't', 'at its end Curator has it');
$c1->release('/xact');

# --- the order of a mixed queue ---

# zklock sees kazoo with patterns, and Curator does not; so kazoo goes before zklock here, and a
# client behind zklock waits for both.
#
# A second backend of server a waits within that server.  Since the server does not hand the lock on
# among its backends while others wait, that backend's turn comes with the server's next turn.
sub run_queue
{
	my ($path, @queue) = @_;
	my %contender = @queue;
	my @names = @queue[ grep { $_ % 2 == 0 } 0 .. $#queue ];
	my (@order, @waiting);

	is($contender{ $names[0] }->acquire($path), 't', "$path: $names[0] holds");
	foreach my $name (@names[ 1 .. $#names ])
	{
		queue($path, $contender{$name});
		push @waiting, $name;
	}
	is($curator->actor('watcher')->query("nodes mutex /zklock$path") =~ s{ \S+__lock__\d+$}{}r,
		join(' ', grep { !/__lock__/ } queue_of($path)),
		"$path: Curator lists them, in this order");

	$a2->send_acquire($path);
	$node_a->wait_for_waiter($path, $contender{ $names[0] } == $a1 ? 1 : 2);
	$contender{'a2'} = $a2;
	push @waiting, 'a2';

	my $holder = $names[0];
	while (@waiting)
	{
		my $node = $contender{$holder}->node;
		$node->wait_until_contended($path) if $node;
		$contender{$holder}->release($path);
		my @done;
		$zk->wait_until(sub { @done = grep { $contender{$_}->is_done } @waiting }, "$path: the next holder");
		is("@done", $done[0], "$path: one has it");
		($holder) = @done;
		is($contender{$holder}->answer, 't', "$path: $holder");
		push @order, $holder;
		@waiting = grep { $_ ne $holder } @waiting;
	}
	$contender{$holder}->release($path);
	wait_for_znodes($path, 0);
	is("@order", "@names[1 .. $#names] a2", "$path: first come, first served");
	return;
}

run_queue('/queue1', c1 => $c1, a1 => $a1, k1 => $k1, k3 => $k3, b1 => $b1, 'c1.b' => $c1b, c2 => $c2, k2 => $k2);
run_queue('/queue2', a1 => $a1, c2 => $c2, k2 => $k2, c1 => $c1, k3 => $k3, b1 => $b1, 'c1.b' => $c1b, k1 => $k1);
run_queue('/queue3', k3 => $k3, b1 => $b1, k1 => $k1, c1 => $c1, 'c1.b' => $c1b, a1 => $a1, k2 => $k2, c2 => $c2);

# --- a client leaves the queue ---

foreach (
	[ 'Curator', $c2, 'InterruptedException' ],
	[ 'kazoo', $k2, 'CancelledError' ],
	[ 'kazoo with patterns', $k3, 'CancelledError' ])
{
	my ($who, $other, $error) = @$_;
	my $path = '/leave_' . $who =~ s/\W+/_/gr;

	$c1->acquire($path);
	my ($holder) = queue_of($path);
	queue($path, $a1);
	queue($path, $other);
	queue($path, $b1);

	$node_a->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $a1->party->pid . ')');
	is($a1->result->{errcode}, '57014', 'zklock is cancelled while it waits');
	wait_for_znodes($path, 3);
	$other->wait_until_watching($zk, $holder);
	ok(!$other->is_done, "$who, behind it, waits on");

	$other->party->cancel;
	is($other->result->{errcode}, $error, "$who is cancelled while it waits");
	wait_for_znodes($path, 2);
	$b1->wait_until_watching($zk, $holder);
	ok(!$b1->is_done, 'zklock, behind it, waits on');

	$c1->release($path);
	is($b1->answer, 't', 'and then has it');
	$b1->release($path);
	wait_for_znodes($path, 0);
}

# --- a holder or a waiter ends ---

# Backends.
$a1->acquire('/end1');
queue('/end1', $c1);
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $a1->party->pid . ')');
is($c1->answer, 't', 'the backend is terminated: Curator has it');
$a1 = zklock($node_a);
queue('/end1', $a1);
queue('/end1', $k1);
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $a1->party->pid . ')');
wait_for_znodes('/end1', 2);
$k1->wait_until_watching($zk, (queue_of('/end1'))[0]);
ok(!$k1->is_done, 'a waiting backend is terminated: the client behind it waits on');
$c1->release('/end1');
is($k1->answer, 't', 'and then has it');
$k1->release('/end1');
$a1 = zklock($node_a);

# Sessions of other clients, some closed in order, some expired without the client's knowledge.
foreach ([ 'Curator', $curator, $c2, $c1 ], [ 'kazoo', $kazoo, $k2, $k1, $k3 ])
{
	my ($who, $peer, $other, @others) = @$_;
	my $path = "/end_$who";

	$other->acquire($path);
	queue($path, $a1);
	$other->party->close;
	is($a1->answer, 't', "$who closes its client: zklock has it");
	$a1->release($path);

	# A service that stands still until its session is over, and then goes on.
	$other->acquire($path);
	my $session = $other->party->session;
	my @old = map { [ $_->party, $_->party->session ] } $other, @others;
	queue($path, $a1);
	$peer->pause;
	$zk->wait_until(sub { $a1->is_done }, "the session of $who to expire");
	ok(!$zk->has_session($session), "$who stands still: not before its session had expired");
	is($a1->answer, 't', "$who stands still: zklock has it");

	# The other clients of the service lose their sessions as well, and are needed below.
	$zk->wait_until(sub { !grep { $zk->has_session($_->[1]) } @old }, "all sessions of $who to expire");
	$peer->resume;
	foreach (@old)
	{
		my ($actor, $was) = @$_;
		$zk->wait_until(sub { my $now = eval { $actor->session } // return ''; $now ne $was },
			"$who to have a new session");
	}
	is($other->try($path . '_other'), 't', "$who goes on");
	$other->release($path . '_other');
	$other->party->run("release mutex /zklock$path");
	is($a1->party->query("SELECT zk_lock_is_held('$path')"), 't', "$who releases what it has lost: zklock holds on");
	$a1->release($path);
}

# The session of a server with zklock expires, and a server is killed.
$node_b->set_session_timeout($zk, '8s');
$b1->acquire('/end2');
queue('/end2', $c1);
queue('/end2', $k3);
queue('/end2', $a1);
$node_b->expire_session($zk);
is($c1->answer, 't', 'the session expires: Curator has it');
is($b1->party->query(q{SELECT zk_lock_is_held('/end2')}), 'f', 'the session expires: zklock knows it');
$b1->party->run(q{SELECT zk_lock_release('/end2')});
ok(!$k3->is_done, 'a release of what was lost frees nothing');
$c1->release('/end2');
is($k3->answer, 't', 'kazoo is next');
$k3->release('/end2');
is($a1->answer, 't', 'then the other server');
$a1->release('/end2');

$b1->acquire('/end3');
queue('/end3', $c1);
my $session = $node_b->status('session_id');
$node_b->kill9_all;
is($c1->answer, 't', 'the server is killed: Curator has it');
ok(!$zk->has_session($session), 'the server is killed: after its session had expired');
$node_b->configure('zklock.session_timeout' => '30s');
$node_b->start;
$node_b->wait_until_connected;
$b1 = zklock($node_b);
is($b1->try('/end3'), 'f', 'the server is back: Curator holds');
queue('/end3', $b1);
$c1->release('/end3');
is($b1->answer, 't', 'the server is back: and has the lock in its turn');
$b1->release('/end3');

# --- strange znodes in the directory ---

# Curator takes every child for a contender, and kazoo those that look like one.  However they treat
# a child, no client holds the lock together with zklock; and a znode that does not look like a
# lock's does not keep zklock from it.  A LeaderLatch waits for no lock, so it is another kind.
my $uuid = '1b4e28ba-2fa1-41d2-883f-0016d3cca427';

# t, f, or how it was refused
sub try_or_error
{
	my ($contender, $path) = @_;
	return $contender->try($path) if $contender->party != $a1->party;
	my $result = $a1->party->run("SELECT zk_lock_acquire('$path', '0')");
	return $result->{errcode} || $result->{out};
}

my $hex = '8f3d5c1e9a7b4d2f8c6e0a1b3d5f7e9c';
my $junk = 0;
foreach (
	#  child					zklock	Curator	kazoo	kazoo with patterns
	[ 'abc',					qw(t	t		t		t) ],
	[ 'leases',					qw(t	t		t		t) ],
	[ 'zz',						qw(t	t		t		t) ],
	[ '1.5',					qw(t	t		t		t) ],
	[ "_c_$uuid-lease-0000000000",	qw(t	t		t		t) ],
	[ "_c_$uuid-latch-0000000000",	qw(ZK003	t	t		t) ],
	[ '0',						qw(t	f		t		t) ],
	[ '-x',						qw(t	f		t		t) ],
	[ '!',						qw(t	f		t		t) ],
	[ '0000000000',				qw(t	f		t		t) ],
	[ 'lock-x',					qw(t	t		t		t) ],
	[ 'lock-0',					qw(t	f		t		t) ],
	# without a number: a lock that Curator's users make by hand, before all others
	[ 'lock-',					qw(f	f		t		t) ],
	[ "_c_$uuid-lock-",			qw(f	f		t		t) ],
	# as the lock of a client in Go has it
	[ "_c_$hex-lock-0000000000",	qw(f	f		f		f) ],
	[ "${hex}__lock__0000000000",	qw(f	t		t		f) ],
	[ "${hex}__rlock__0000000000",	qw(f	t		t		t) ],
	# a counter that has run over, as strings are compared
	[ "_c_$uuid-lock-2147483646",	qw(t	t		t		t) ],
	[ "_c_$uuid-lock-2147483647",	qw(t	t		t		t) ],
	[ "_c_$uuid-lock--2147483648",	qw(f	f		f		f) ],
	[ "_c_$uuid-lock--2147483647",	qw(f	f		f		f) ],
	[ "_c_$uuid-lock--1000000000",	qw(f	f		f		f) ],
	[ "_c_$uuid-lock--999999999",	qw(f	f		t		t) ],
	[ "_c_$uuid-lock--000000001",	qw(f	f		t		t) ],
	[ "${hex}__lock__2147483647",	qw(t	t		t		t) ],
	[ "${hex}__lock__-2147483648",	qw(f	t		t		f) ])
{
	my ($child, @expected) = @$_;
	my $refusal = $expected[0] eq 'ZK003' ? 'ZK003' : 'f';
	my @contenders = ([ zklock => $a1 ], [ Curator => $c1 ], [ kazoo => $k1 ], [ 'kazoo with patterns' => $k3 ]);

	my $path = '/junk' . ++$junk;
	$zk->create("/zklock$path/$child");
	foreach my $i (0 .. $#contenders)
	{
		my ($who, $contender) = @{ $contenders[$i] };
		my $got = try_or_error($contender, $path);
		is($got, $expected[$i], "beside $child: $who");
		wait_for_znodes($path, $got eq 't' ? 2 : 1);
		next if $got ne 't';
		my @rivals = $i == 0 ? @contenders[ 1 .. 3 ] : $contenders[0];
		is_deeply([ map { $_->[0] } grep { try_or_error($_->[1], $path) ne $refusal } @rivals ], [],
			"beside $child: $who holds, and is not joined");
		$contender->release($path);
		wait_for_znodes($path, 1);
	}
	is_deeply(wait_for_znodes($path, 1), [$child], "beside $child: left alone");
}

# A znode that keeps Curator waiting and that zklock ignores holds up neither for ever.
$zk->create('/zklock/mixed/0');
queue('/mixed', $c1);
is($a1->try('/mixed'), 'f', 'zklock queues behind Curator, which waits for something else');
queue('/mixed', $a1);
$zk->delete('/zklock/mixed/0');
is($c1->answer, 't', 'the child goes: Curator has it');
ok(!$a1->is_done, 'zklock waits for Curator');
$c1->release('/mixed');
is($a1->answer, 't', 'and has it then');
$a1->release('/mixed');

# A lock of Curator's in the directory of one of ours, and the other way round.
is($c1->acquire('/outer/0'), 't', 'Curator holds a lock inside of the directory');
is($a1->try('/outer'), 't', 'zklock has the outer one');
is($b1->try('/outer/0'), 'f', 'but not the inner one');
is($c2->try('/outer'), 'f', 'Curator has not the outer one');
$a1->release('/outer');
$c1->release('/outer/0');

# --- the end ---

foreach my $node ($node_a, $node_b)
{
	$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
	pass($node->name . ': no entry is left');
}
$_->party->quit foreach $a1, $a2, $b1;
foreach my $node ($node_a, $node_b)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
is_deeply([ grep { m{^/zklock/(?!junk).*lock-} } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
