
# All ways in which a wait by CALL can end: nothing is left behind, and the session goes on.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '60s', 'zklock.linger' => 0, 'zklock.tenure' => 0);
my $node = ZklockNode->started('a', $zk, %settings);
my $node_far = ZklockNode->started('far', $zk, %settings);
my %holder = (near => $node->backend, far => $node_far->backend);
my $watcher = $node->backend;

my %kinds = (
	lock => [ 'zk_lock', q{'%s'} ],
	read_lock => [ 'zk_write_lock', q{'%s'} ],
	write_lock => [ 'zk_write_lock', q{'%s'} ],
	semaphore => [ 'zk_semaphore', q{'%s', 1} ],
	multilock => [ 'zk_lock', q{ARRAY['%s', '%1$s/2']} ]);

# For a multilock: it waits for the first path, and needs both.
sub hold { my ($kind, $path) = @_; return "SELECT $kinds{$kind}[0]_acquire('$path'" . ($kind eq 'semaphore' ? ', 1)' : ')'); }

sub wait_until_asleep
{
	my ($backend, $path) = @_;
	return $watcher->wait_until("SELECT (SELECT count(*) > 0 FROM zk_locks WHERE path LIKE '$path%' AND pid = ${\ $backend->pid} AND claim = 'waiting' AND (kind = 'semaphore' OR ticket IN ('queued', 'owned')))"
		. " AND (SELECT wait_event IS NOT NULL AND backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ${\ $backend->pid})");
}

# Nothing of the waiter is left, and the holder is unharmed.
sub nothing_is_left
{
	my ($where, $kind, $path, $pid, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$watcher->wait_until("SELECT NOT EXISTS (SELECT FROM zk_locks WHERE pid = $pid) AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = 0 AND pid = $pid)");
	is($holder{$where}->query("SELECT zk_lock_is_held('$path')"), 't', "$what: nothing is left, and the holder still holds");
	return;
}

foreach my $kind (sort keys %kinds)
{
	foreach my $where ('near', 'far')
	{
		my $path = "/end/$kind/$where";
		my $arguments = sprintf($kinds{$kind}[1], $path);
		my $holder = $holder{$where};
		$holder->query(hold($kind, $path));
		foreach my $level ('', 'xact_')
		{
			my ($what, $call) = ("zk_$level${kind}_wait, $where", "CALL zk_$level${kind}_wait($arguments)");
			my $waiter = $node->backend;
			my $pid = $waiter->pid;
			foreach ([ statement_timeout => '57014' ], [ lock_timeout => '55P03' ])
			{
				my ($setting, $sqlstate) = @$_;
				$waiter->query("SET $setting = '100ms'");
				is($waiter->errcode($call), $sqlstate, "$what: $setting");
				$waiter->query("RESET $setting");
				nothing_is_left($where, $kind, $path, $pid, "$what: $setting");
			}
			foreach my $begin ('', 'BEGIN; SAVEPOINT s')
			{
				$waiter->query($begin);
				$waiter->send($call);
				wait_until_asleep($waiter, $path);
				$watcher->query("SELECT pg_cancel_backend($pid)");
				is($waiter->result->{errcode}, '57014', "$what: cancelled, " . ($begin || 'at top level'));
				nothing_is_left($where, $kind, $path, $pid, "$what: cancelled");
				next if !$begin;
				$waiter->query('ROLLBACK TO s');
				is($waiter->errcode("$call;" =~ s/\);$/, timeout => '10 ms')/r), '55P03', "$what: a timeout in a transaction");
				nothing_is_left($where, $kind, $path, $pid, "$what: timeout");
				$waiter->query('ROLLBACK TO s');
				is($waiter->query('SELECT count(*) > 0 FROM pg_class'), 't', "$what: the transaction goes on");
				$waiter->query('COMMIT');
			}

			# The error is caught, and what follows has a snapshot.
			$waiter->query(q{DO $$ BEGIN BEGIN } . $call =~ s/\)$/, timeout => '0')/r . q{; EXCEPTION WHEN lock_not_available THEN PERFORM count(*) FROM pg_class; END; END $$});
			nothing_is_left($where, $kind, $path, $pid, "$what: caught");

			$waiter->send($call);
			wait_until_asleep($waiter, $path);
			$watcher->query("SELECT pg_terminate_backend($pid)");
			is($waiter->result->{errcode}, '57P01', "$what: terminated");
			nothing_is_left($where, $kind, $path, $pid, "$what: terminated");
		}
		$holder->query('SELECT zk_lock_release_all()');
		$_->wait_until_clean($path) foreach $node, $node_far;
	}
}

# --- the ZooKeeper session of the waiter's server is lost during the wait ---

foreach my $kind (sort keys %kinds)
{
	my ($path, $holder) = ("/lost/$kind", $holder{far});
	my $waiter = $node->backend;

	# A multilock has the first path by then.
	$holder->query(hold($kind, $kind eq 'multilock' ? "$path/2" : $path));
	$waiter->send("CALL zk_${kind}_wait(" . sprintf($kinds{$kind}[1], $path) . ')');
	wait_until_asleep($waiter, $path);
	$node->expire_session($zk, by_hand => 1);
	wait_until_asleep($waiter, $path);
	$watcher->query('SELECT pg_cancel_backend(' . $waiter->pid . ')');
	is($waiter->result->{errcode}, '57014', "$kind: the wait goes on after the loss of the session, without a snapshot");
	$node->wait_until_clean($path);

	$waiter->send("CALL zk_${kind}_wait(" . sprintf($kinds{$kind}[1], $path) . ')');
	wait_until_asleep($waiter, $path);
	$node->expire_session($zk, by_hand => 1);
	wait_until_asleep($waiter, $path);
	$holder->query('SELECT zk_lock_release_all()');
	is($waiter->result->{errcode}, '', "$kind: and acquires");
	is($waiter->query('SELECT zk_lock_release_all()'), $kind eq 'multilock' ? 2 : 1, "$kind: once");
	$waiter->quit;
	$_->wait_until_clean($path) foreach $node, $node_far;
}

# --- the timeout passes at the moment of the grant ---

foreach my $where ('near', 'far')
{
	foreach my $kind ('lock', 'semaphore', 'multilock')
	{
		my ($path, $what) = ("/race/$kind/$where", "$kind, $where: timeout at the moment of the grant");
		my ($holder, $waiter, $rounds, $release_at, %outcome) = ($holder{$where}, $node->backend, 25, 0.03);
		my $call = "CALL zk_${kind}_wait(" . sprintf($kinds{$kind}[1], $path) . q{, timeout => '30 ms')};
		foreach my $round (1 .. $rounds)
		{
			$holder->query(hold($kind, $path));
			$waiter->send($call);
			$holder->send("SELECT pg_sleep($release_at), zk_lock_release_all()");
			$holder->answer;
			my $sqlstate = $waiter->result->{errcode};
			$outcome{$sqlstate}++;
			$release_at += ($sqlstate eq '' ? 1 : -1) * rand 0.003;
			$release_at = 0 if $release_at < 0;
			is($waiter->query('SELECT zk_lock_release_all()'), $sqlstate eq '' ? ($kind eq 'multilock' ? 2 : 1) : 0, "$what: " . ($sqlstate || 'has it'));
		}
		note explain \%outcome;
		is(($outcome{''} // 0) + ($outcome{'55P03'} // 0), $rounds, "$what: no other outcome");
		$_->wait_until_clean($path) foreach $node, $node_far;
		$waiter->quit;
	}
}
$node->wait_until('SELECT entries = 0 FROM zk_status');
pass('no entry is left');

$_->quit foreach $watcher, values %holder;
$_->stop foreach $node, $node_far;
done_testing();
