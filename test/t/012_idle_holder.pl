
# A backend that loses its lock while it is idle does not hold up the waiters of the same server,
# although it still has the advisory lock.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk,
	'zklock.tenure' => '1h', 'zklock.linger' => 0,
	'zklock.on_lost' => 'notice');
my ($holder, $other, $w1, $w2, $w3) = map { $node->backend } 1 .. 5;

# Advisory lock modes that the backend holds on zklock's tags.
sub local_locks
{
	my ($backend) = @_;
	return $node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0 AND granted AND pid = }
		. $backend->pid);
}

# One row after another, each with a lock's whole life, up to its loss by the holder.
my %lose = (
	'the lease time is over' => [ q{, lease_time => '500 ms'}, sub { } ],
	'the znode is deleted' => [ '', sub { my ($path) = @_; $zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]); } ],
	'the session expires' => [ '', sub { $node->expire_session($zk, by_hand => 1) } ]);

foreach my $loss (sort keys %lose)
{
	my ($argument, $lose) = @{ $lose{$loss} };
	foreach my $scope ('session', 'transaction')
	{
		my $what = "$loss, $scope";
		my $path = '/' . $what =~ s/\W+/_/gr;
		my $function = $scope eq 'session' ? 'zk_lock_acquire' : 'zk_xact_lock_acquire';

		$holder->query('BEGIN') if $scope eq 'transaction';
		$holder->query("SELECT $function('$path'$argument)");
		$w1->send(acquire($path));
		$w2->send(acquire($path, '1min'));
		$w3->send("SET lock_timeout = '1min'; SELECT zk_lock_acquire('$path')");
		$node->wait_for_waiter($path, 3) unless $argument;
		$lose->($path);

		my %waits = (w1 => $w1, w2 => $w2, w3 => $w3);
		foreach my $turn (1 .. 3)
		{
			my $who;
			$zk->wait_until(sub { ($who) = grep { $waits{$_}->is_done } sort keys %waits; defined $who }, "$what: a waiter to get it");
			my $backend = delete $waits{$who};
			is($backend->answer, 't', "$what: waiter $turn has it");
			ok(!(grep { $waits{$_}->is_done } keys %waits), "$what: and no other");
			is(local_locks($holder), '1', "$what: the holder has done nothing") if $turn == 1;
			$backend->query(release($path));
			$backend->query('RESET lock_timeout');
		}
		if ($scope eq 'transaction')
		{
			like($holder->errcode(token($path)), qr/^ZK00[12]$/, "$what: the holder is told");
			$holder->query('ROLLBACK');
		}
		else
		{
			is($holder->query(release($path)), 'f', "$what: the holder is told");
		}
		is(local_locks($holder), '0', "$what: then it has nothing left");
		$node->wait_until_clean($path);
	}
}

# A writer behind two readers of which one goes on reading.
$holder->query("SELECT zk_read_lock_acquire('/rw', lease_time => '300 ms')");
$other->query("SELECT zk_read_lock_acquire('/rw')");
$w1->send("SELECT zk_write_lock_acquire('/rw')");
$node->wait_until("SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/rw'");
$node->wait_until("SELECT bool_or(mode = 'write' AND claim = 'waiting') FROM zk_locks WHERE path = '/rw'");
ok(!$w1->is_done, 'a reader is left: the writer waits');
$other->query("SELECT zk_read_lock_release('/rw')");
is($w1->answer, 't', 'no reader is left: it writes');
$w1->query("SELECT zk_write_lock_release('/rw')");
$holder->query("SELECT zk_lock_release_all()");

# A cancel ends the wait.  It must hit nothing else: not the waiter's next statement; and a user's
# own cancel must not get lost for long.
my ($granted, $stray) = (0, 0);
foreach my $round (1 .. 100)
{
	$holder->query("SELECT zk_lock_acquire('/race', lease_time => '" . (100 + $round % 20) . " ms')");
	$_->send(acquire('/race')) foreach $w1, $w2;
	foreach my $turn (1, 2)
	{
		my $who;
		$zk->wait_until(sub { ($who) = grep { defined $_->{banner} && $_->is_done } $w1, $w2; defined $who }, 'a waiter');
		$granted++ if $who->answer eq 't';
		$stray++ if $who->errcode('SELECT count(*) FROM generate_series(1, 20000)') ne '';
		$who->query(release('/race'));
	}
	$holder->run(release('/race'));
}
is($granted, 200, 'a lease time that ends at any moment of a wait: all waiters had it');
is($stray, 0, 'and no statement was cancelled after that');

# The same while the releasing backend waits until its znode is gone: the end of the lease time must
# not be counted for that claim once more.
$node->set('zklock.synchronous_release', 'on');
$node->set('zklock.linger', '10ms');
$holder->query("SELECT zk_lock_acquire('/sync', lease_time => '4 s')");

# By then the worker has set its timer for the end of the lease time.
$node->wait_until("SELECT clock_timestamp() > owned_since + interval '200 ms' FROM zk_locks WHERE path = '/sync'");
my $lease_ends = $holder->query("SELECT lease_ends FROM zk_locks WHERE path = '/sync'");
$zk->pause(1);
$holder->send(release('/sync'));
$node->wait_for_ticket('/sync', 'releasing');
$w1->send(acquire('/sync'));
$node->wait_for_waiter('/sync', 1);
$node->wait_until("SELECT clock_timestamp() > '$lease_ends'::timestamptz + interval '100 ms'");
$zk->resume(1);
is($holder->answer, 't', 'released before its end');
is($w1->answer, 't', 'the next one has it');

# The waiter's work under the lock takes longer than an idle ticket would last.
is($w1->query(q{SELECT pg_sleep(0.2), zk_lock_is_held('/sync'), (SELECT ticket FROM zk_locks WHERE path = '/sync')}), '|t|owned', 'and its ticket does not pass for idle');
is(scalar @{ $zk->children('/zklock/sync') }, 1, 'nor is its znode gone');
$w1->query(release('/sync'));
$node->set('zklock.synchronous_release', 'off');
$node->set('zklock.linger', '0');

$holder->query(acquire('/cancel'));
$w1->send(acquire('/cancel'));
$node->wait_for_waiter('/cancel', 1);
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $w1->pid . ')');
is($w1->result->{errcode}, '57014', "a user's cancel ends a wait as ever");
$holder->query(release('/cancel'));

# A signal that arrives at the same moment as zklock's is not lost.  The waiter stands still until
# both signals are there.
my $pid = $w1->pid;
my $wait_for_timeout = sub {
	$node->wait_until("SELECT clock_timestamp() > query_start + interval '5100 ms' FROM pg_stat_activity WHERE pid = $pid"); };
my %zklock_ends_it = (
	'new generation' => [ '', sub { my ($path) = @_;
		$zk->delete("/zklock$path/" . $zk->children("/zklock$path")->[0]);
		$node->wait_until("SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '$path'"); } ],
	'end of the time' => [ q{, '5s'}, $wait_for_timeout ]);
my %other_end = (
	'cancel' => [ '0', sub { $node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)") } ],
	'statement_timeout' => [ '5s', $wait_for_timeout ]);
foreach my $end (sort keys %zklock_ends_it)
{
	foreach my $other (sort keys %other_end)
	{
		# Of two timeouts, the first one counts.
		next if $end eq 'end of the time' && $other eq 'statement_timeout';
		my $path = "/$end and $other" =~ s/ /_/gr;
		my ($argument, $end_it) = @{ $zklock_ends_it{$end} };
		my ($timeout, $end_otherwise) = @{ $other_end{$other} };

		$holder->query(acquire($path));
		$w1->query("SET statement_timeout = '$timeout'");
		$w1->send("SELECT zk_lock_acquire('$path'$argument)");
		$node->wait_for_waiter($path, 1);
		kill 'STOP', $pid;
		$end_it->($path);
		$end_otherwise->();
		kill 'CONT', $pid;
		is($w1->result->{errcode}, '57014', "$end and $other at one moment: the wait is cancelled");
		$w1->query('RESET statement_timeout');
		$holder->run(release($path));
	}
}

# lock_timeout counts from the call, also if a new generation makes the wait begin again.
$holder->query(acquire('/again'));
$w1->query("SET lock_timeout = '6s'");
$w1->send(acquire('/again'));
$node->wait_for_waiter('/again', 1);
kill 'STOP', $pid;
$zk->delete('/zklock/again/' . $zk->children('/zklock/again')->[0]);
$node->wait_until(q{SELECT bool_or(claim = 'lost') FROM zk_locks WHERE path = '/again'});
is($other->query(acquire('/again')), 't', 'another backend has the lock of the new generation');
$node->wait_until("SELECT clock_timestamp() > query_start + interval '4 s' FROM pg_stat_activity WHERE pid = $pid");
kill 'CONT', $pid;
my $result = $w1->result;
is($result->{errcode}, '55P03', 'lock_timeout in the second local wait');
like($result->{err}, qr/canceling statement due to lock timeout\n.*CONTEXT:  .*"\/again"/s, 'as in the first one');
cmp_ok($result->{seconds}, '>=', 5.9, 'not too early');
cmp_ok($result->{seconds}, '<', 9.5, 'and it did not begin anew');

done_testing();
