
# At each fault point of src, a process stops, fails or dies; and others can or cannot have
# the lock as they should.  Needs servers with fault points (make FAULTS=1).
#
# The server where it happens is a victim.  The judge is a backend of another server that wants the
# lock meanwhile.  A case is a point, a way to get there and an action.  Cases do not affect one
# another, so many are in one state together, and wait for the same expiry.

use strict;
use warnings;

use FindBin;
use List::Util qw(uniq);
use Time::HiRes qw(time);

use ZklockTest qw(!acquire !release);

my $ways = 7;					# servers that something happens to at a time
my $promptly = 10;				# seconds; an acquire without a limit would never end

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '20s',
	'zklock.connection_timeout' => '60s',
	'zklock.linger' => 0,
	'restart_after_crash' => 'on',
	'max_worker_processes' => 2);

# The other servers are copies of this one.
my $judge_node = ZklockNode->started('judge', $zk, %settings);
$judge_node->safe_psql('postgres', 'CREATE TABLE t (n serial, path text, v integer, token bigint)');
$judge_node->stop;
$judge_node->backup_fs_cold('copy');
my @nodes = map { ZklockNode->new("victim$_") } 1 .. $ways;
foreach my $node (@nodes)
{
	$node->init_from_backup($judge_node, 'copy');
	$node->configure('zklock.node_name' => $node->name, 'zklock.session_timeout' => '3s');
}
$_->start foreach $judge_node, @nodes;
$_->wait_until_connected foreach $judge_node, @nodes;
my $judge = $judge_node->backend;

# One backend of each server that queries and watches.
my %watcher;
sub ask { my ($node, $sql) = @_; return ($watcher{ $node->name } //= $node->backend)->query($sql); }
sub wait_until { my ($node, $sql) = @_; return wait_for(sub { ask($node, $sql) eq 't' }, $node->name . ": $sql"); }
sub forget_watcher { my ($node) = @_; (delete $watcher{ $node->name })->kill_client if $watcher{ $node->name }; return; }

# --- kinds of locks: acquire, with the time that the backend waits; release ---

my %kinds = (
	mutex => [ q{zk_lock_acquire('%s', %s)}, q{zk_lock_release('%s')} ],
	xact => [ q{zk_xact_lock_acquire('%s', %s)} ],
	rw => [ q{zk_write_lock_acquire('%s', %s)}, q{zk_write_lock_release('%s')} ],
	semaphore => [ q{zk_semaphore_acquire('%s', 1, %s)}, q{zk_semaphore_release('%s')} ],
	leases => [ q{zk_semaphore_acquire('%s', 2, %s, 2)}, q{zk_semaphore_release('%s', 2)} ],
	lease => [ q{zk_semaphore_acquire('%s', 2, %s, 1)} ],
	multi => [ q{zk_multilock_acquire('{%1$s, %1$s/2}', %2$s)} ]);

sub acquire { my ($kind, $path, $timeout) = @_; return 'SELECT ' . sprintf($kinds{$kind}[0], $path, defined $timeout ? "'$timeout'" : 'NULL'); }
sub release { my ($kind, $path) = @_; return 'SELECT ' . sprintf($kinds{$kind}[1], $path); }

# Rows that are written under a lock count up, and show whether another transaction has counted from
# the same row.
sub count_up { my ($path, $token) = @_; $token //= "zk_lock_token('$path')"; return "INSERT INTO t (path, v, token) SELECT '$path', count(*) + 1, $token FROM t WHERE path = '$path'"; }

# --- ways to a point: what is done before, then what leads there ---

# Each is given a case: a hash with node, point, path, kind and victim, a backend.
sub query { my ($c, @sql) = @_; $c->{victim}->query($_) foreach @sql; return; }
sub acquires { my ($kind) = @_; return sub { my ($c) = @_; $c->{victim}->send(acquire($kind // $c->{kind}, $c->{path})); }; }
sub holds { my ($c) = @_; query($c, acquire($c->{kind}, $c->{path})); return; }
sub transaction { my ($c, @paths) = @_; query($c, 'BEGIN', (map { acquire('xact', $_) } @paths), count_up($c->{path})); return; }

my %drives = (
	acquire => [ sub { }, acquires() ],
	# A directory that was used lately needs a list.
	again => [ sub { my ($c) = @_; holds($c); query($c, release($c->{kind}, $c->{path})); }, acquires() ],
	release => [ \&holds, sub { my ($c) = @_; $c->{victim}->send(release($c->{kind}, $c->{path})); } ],
	# The worker stands still until the backend is there; otherwise the worker may be too quick.
	synchronous => [
		sub { my ($c) = @_; query($c, 'SET zklock.synchronous_release = on'); holds($c); },
		sub {
			my ($c) = @_;
			kill 'STOP', $c->{worker};
			$c->{victim}->send(release($c->{kind}, $c->{path}));
			wait_until_there($c);
			kill 'CONT', $c->{worker};
		} ],
	# Another backend of the same server has the lock, and lets go of it.
	local => [
		sub {
			my ($c) = @_;
			$c->{helper} = $c->{node}->backend;
			$c->{helper}->query(acquire('mutex', $c->{path}));
			$c->{victim}->send(acquire('mutex', $c->{path}));
			wait_until($c->{node}, "SELECT count(*) = 1 FROM zk_locks WHERE path = '$c->{path}' AND NOT granted");
		},
		sub { my ($c) = @_; $c->{helper}->query(release('mutex', $c->{path})); $c->{helper}->quit; } ],
	# The other server has the lock.
	queue => [ sub { my ($c) = @_; $judge->query(acquire('mutex', $c->{path})); $c->{judge_holds} = 1; }, acquires() ],
	turn => [
		sub {
			my ($c) = @_;
			$judge->query(acquire('mutex', $c->{path}));
			$c->{victim}->send(acquire($c->{kind}, $c->{path}));
			wait_until_watching($c);
		},
		sub { my ($c) = @_; $judge->query(release('mutex', $c->{path})); } ],

	commit => [ sub { my ($c) = @_; transaction($c, $c->{path}); }, sub { my ($c) = @_; $c->{victim}->send('COMMIT'); } ],
	fenced => [
		sub {
			my ($c) = @_;
			query($c, 'BEGIN', acquire('xact', $c->{path}), "SELECT zk_fence('$c->{path}', zk_lock_token('$c->{path}'))", count_up($c->{path}));
		},
		sub { my ($c) = @_; $c->{victim}->send('COMMIT'); } ],
	commit_two => [ sub { my ($c) = @_; transaction($c, "$c->{path}/2", $c->{path}); }, sub { my ($c) = @_; $c->{victim}->send('COMMIT'); } ],
	rollback => [ sub { my ($c) = @_; transaction($c, $c->{path}); }, sub { my ($c) = @_; $c->{victim}->send('ROLLBACK'); } ],
	savepoint => [
		sub { my ($c) = @_; query($c, 'BEGIN; SAVEPOINT s', acquire('xact', $c->{path}), count_up($c->{path})); },
		sub { my ($c) = @_; $c->{victim}->send('ROLLBACK TO s'); } ],
	exit => [ \&holds, sub { my ($c) = @_; $c->{victim}->send('SELECT pg_terminate_backend(pg_backend_pid())'); } ],
	exit_two => [
		sub { my ($c) = @_; holds($c); query($c, acquire('mutex', "$c->{path}/2")); },
		sub { my ($c) = @_; $c->{victim}->send('SELECT pg_terminate_backend(pg_backend_pid())'); } ],

	more => [ sub { my ($c) = @_; query($c, acquire('lease', $c->{path})); }, acquires('lease') ],
	multi => [ sub { }, acquires('multi') ],
	multi_turn => [
		sub {
			my ($c) = @_;
			$judge->query(acquire('mutex', $c->{path}));
			$c->{victim}->send(acquire('multi', $c->{path}));
			wait_until_watching($c);
			# First the backend requests both locks at once.  The case is about its wait for the
			# first one alone.  When it waits, it has requested both.
			wait_until($c->{node}, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $c->{victim}->pid);
			wait_until($c->{node}, "SELECT count(*) = 0 FROM zk_locks WHERE path = '$c->{path}/2' AND pid IS NOT NULL");
		},
		sub { my ($c) = @_; $judge->query(release('mutex', $c->{path})); } ],
	command => [ sub { }, sub { my ($c) = @_; $c->{victim}->send("SELECT count(*) FROM zk_lock_queue('$c->{path}')"); } ],

	# Steps that only the worker makes.
	hold => [ \&holds, sub { } ],
	downgrade => [
		sub { my ($c) = @_; holds($c); query($c, "SELECT zk_read_lock_acquire('$c->{path}')"); },
		sub { my ($c) = @_; $c->{victim}->send(release('rw', $c->{path})); } ],
	delete => [ \&holds, sub { my ($c) = @_; $zk->delete("/zklock$c->{path}/$_") foreach @{ $zk->children("/zklock$c->{path}") }; } ],
	lease_time => [ sub { }, sub { my ($c) = @_; query($c, "SELECT zk_lock_acquire('$c->{path}', NULL, '1 s')"); } ],
	expire => [
		\&holds,
		sub {
			my ($c) = @_;
			kill 'STOP', $c->{worker};
			$zk->kill_session($c->{session}) || !$zk->has_session($c->{session}) or die 'the session does not end';
			kill 'CONT', $c->{worker};
		} ],
	reattach => [ \&holds, sub { my ($c) = @_; kill 'TERM', $c->{worker}; } ],
	shutdown => [
		\&holds,
		sub { my ($c) = @_; forget_watcher($c->{node}); system_or_bail('pg_ctl', '-D', $c->{node}->data_dir, '-m', 'fast', '-W', 'stop'); } ],
	crash => [
		\&holds,
		sub {
			my ($c) = @_;
			forget_watcher($c->{node});
			kill 'KILL', $c->{victim}->pid;
			$c->{victim}->kill_client;
			undef $c->{victim};
		} ]);

# --- points of backends ---

# What becomes of the claim when the session expires while the backend stands still there:
#	held	it gets the lock, after all others
#	lost	it is told that it has the lock, and then that it was lost
#	refused	the statement is
#	late	the commit is done, though others have the lock: the gap after the guard
#	done	the statement is not concerned
#	gone	the backend is
# and when it fails there: what is left, or "-" where nothing may fail.
my @backend_points = (
	# point					drive			kind		judge	expiry	failure
	[ 'claim-begun',		'acquire',		'mutex',	't',	'held',	'none' ],
	[ 'advisory-locked',		'acquire',		'mutex',	't',	'held',	'none' ],
	[ 'advisory-lock-granted',	'local',		'mutex',	'f',	'held',	'none' ],
	[ 'request-queued',		'acquire',		'mutex',	'f',	'held',	'none' ],
	[ 'granted',			'acquire',		'mutex',	'f',	'lost',	'none' ],
	[ 'counted',			'acquire',		'mutex',	'f',	'lost',	'-' ],
	[ 'acquired',			'acquire',		'mutex',	'f',	'lost',	'held' ],
	[ 'release-begun',		'release',		'mutex',	'f',	'done',	'-' ],
	[ 'release-marked',		'release',		'mutex',	't',	'done',	'-' ],
	[ 'release-waiting',	'synchronous',	'mutex',	't',	'done',	'-' ],
	[ 'commit-begun',		'commit',		'mutex',	'f',	'refused', 'none' ],
	[ 'guard-passed',		'commit',		'mutex',	'f',	'late',	'none' ],
	[ 'xact-ended',			'commit',		'mutex',	'f',	'done',	'-' ],
	[ 'xact-ended',			'rollback',		'mutex',	'f',	'done',	'-' ],
	[ 'xact-claim-ended',	'commit_two',	'mutex',	't',	'done',	'-' ],
	[ 'savepoint-aborted',	'savepoint',	'mutex',	'f',	'done',	'-' ],
	[ 'exit-begun',			'exit',			'mutex',	'f',	'gone',	'-' ],
	[ 'exit-between',		'exit_two',		'mutex',	undef,	'gone',	'-' ],
	[ 'semaphore-mutex-held', 'acquire',	'semaphore', 't',	'held',	'none' ],
	[ 'semaphore-surveyed',	'acquire',		'semaphore', 't',	'held',	'none' ],
	[ 'semaphore-granted',	'acquire',		'semaphore', 'f',	'lost',	'none' ],
	[ 'semaphore-acquired',	'acquire',		'semaphore', 'f',	'lost',	'none' ],
	[ 'request-queued',		'more',			'leases',	'f',	'refused', 'held' ],
	[ 'semaphore-acquired',	'more',			'leases',	'f',	'lost',	'held' ],
	[ 'semaphore-merged',	'more',			'leases',	'f',	'lost',	'held' ],
	[ 'multilock-asked',	'multi',		'mutex',	'f',	'held',	'none' ],
	[ 'multilock-between',	'multi_turn',	'mutex',	'f',	'held',	'none' ],
	[ 'multilock-held',		'multi',		'mutex',	'f',	'lost',	'none' ],
	[ 'multilock-counting',	'multi',		'mutex',	'f',	'lost',	'none' ],
	[ 'command-asked',		'command',		'mutex',	't',	'done',	'none' ],
	[ 'command-done',		'command',		'mutex',	't',	'done',	'none' ]);

# --- points of the worker, and where it has to wait for a backend ---

# What the judge's try says while the worker stands still; what becomes of the claim then, and when
# the worker fails there instead.
my @worker_points = (
	# point					drive			kind		judge	expiry	failure
	[ 'want-seen',			'acquire',		'mutex',	't',	'held',	'held' ],
	[ 'directory-sent',		'acquire',		'mutex',	't',	'held',	'held' ],
	[ 'directory-answered',	'acquire',		'mutex',	't',	'held',	'held' ],
	[ 'create-sent',		'acquire',		'mutex',	undef,	'held',	'held' ],
	[ 'create-answered',	'acquire',		'mutex',	'f',	'held',	'held' ],
	[ 'create-sent',		'again',		'mutex',	undef,	'held',	'held' ],
	[ 'list-sent',			'again',		'mutex',	undef,	'held',	'held' ],
	[ 'create-answered',	'again',		'mutex',	'f',	'held',	'held' ],
	[ 'list-answered',		'again',		'mutex',	'f',	'held',	'held' ],
	[ 'owned',				'acquire',		'mutex',	'f',	'held',	'-' ],
	[ 'grant-written',		'acquire',		'mutex',	'f',	'lost',	'held' ],
	[ 'watch-sent',			'queue',		'mutex',	'f',	'held',	'held' ],
	[ 'watch-answered',		'queue',		'mutex',	'f',	'held',	'held' ],
	[ 'watch-fired',		'turn',			'mutex',	'f',	'held',	'held' ],
	[ 'release-seen',		'release',		'mutex',	'f',	'done',	'done' ],
	[ 'delete-sent',		'release',		'mutex',	't',	'done',	'done' ],
	[ 'delete-answered',	'release',		'mutex',	't',	'done',	'done' ],
	[ 'downgrade-sent',		'downgrade',	'rw',		'f',	'lost',	'held' ],
	[ 'downgrade-answered',	'downgrade',	'rw',		'f',	'lost',	'held' ],
	[ 'hold-begun',			'acquire',		'mutex',	'f',	'lost',	'-' ],
	[ 'loss-noticed',		'delete',		'mutex',	't',	'lost',	'-' ],
	[ 'claim-marked',		'delete',		'mutex',	't',	'lost',	'-' ],
	[ 'claims-marked',		'delete',		'mutex',	't',	'lost',	'lost' ],
	[ 'timer-fired',		'lease_time',	'mutex',	'f',	'lost',	'lost' ],
	[ 'lease-time-marked',	'lease_time',	'mutex',	'f',	'lost',	'lost' ],
	[ 'heartbeat-sent',		'hold',			'mutex',	'f',	'lost',	'held' ],
	[ 'heartbeat-answered',	'hold',			'mutex',	'f',	'lost',	'held' ],
	[ 'safe-until-moved',	'hold',			'mutex',	'f',	'lost',	'held' ],
	[ 'expired',			'expire',		'mutex',	't',	'lost',	'lost' ],
	[ 'epoch-raised',		'expire',		'mutex',	't',	'lost',	'lost' ],
	[ 'session-forgotten',	'expire',		'mutex',	't',	'lost',	'lost' ],
	[ 'session-file-new',	'expire',		'mutex',	't',	'lost',	'lost' ],
	[ 'session-file-written', 'expire',		'mutex',	't',	'lost',	'lost' ],
	[ 'session-published',	'expire',		'mutex',	't',	'lost',	'lost' ],
	[ 'connected',			'reattach',		'mutex',	'f',	'lost',	'held' ],
	[ 'old-session-closed',	'crash',		'mutex',	't',	'none',	'none' ],
	[ 'command-taken',		'command',		'mutex',	't',	'done',	'done' ],
	[ 'command-answered',	'command',		'mutex',	't',	'done',	'done' ]);

# A backend that stands still there holds up all backends that want the same partition of the lock
# table.
my $in_the_midst = qr/^(claim-marked|hold-begun)$/;

# --- one case ---

my @cases;

sub new_case
{
	my ($node, $what, $row) = @_;
	my ($point, $drive, $kind, $judge, $expiry, $failure) = @$row;
	my $case = {
		node => $node, point => $point, drive => $drives{$drive}, kind => $kind,
		path => "/$what/$point/$drive",
		judge => $judge, expiry => $expiry, failure => $failure,
		name => "$what: $point", drive_name => $drive,
	};
	@$case{qw(worker session epoch)} = split /\|/, ask($node, 'SELECT worker_pid, session_id, epoch FROM zk_status');
	$case->{victim} = $node->backend;
	$zk->create("/zklock$case->{path}") unless $point =~ /^directory/;
	push @cases, $case;
	return $case;
}

# Go to the point.
sub start_case
{
	my ($c, $action) = @_;
	$c->{drive}[0]->($c);
	arm($c, $c->{point}, $action);
	$c->{drive}[1]->($c);
	return;
}

sub arm
{
	my ($c, $point, $action) = @_;
	@$c{qw(armed action log_at)} = ($point, $action, -s $c->{node}->logfile);
	delete $c->{process};
	return $c->{node}->arm($point, $action);
}

# A process has got to the point, and stands still if it is told to.
sub wait_until_there { my ($c) = @_; $c->{process} = $c->{node}->at_point($c->{armed}); return; }

sub wait_for
{
	my ($condition, $what) = @_;
	return $zk->wait_until($condition, $what);
}

sub wait_until_watching
{
	my ($c) = @_;
	wait_for(sub { $zk->cmd('wchc') =~ m{^\Q$c->{session}\E\n(?:\t.*\n)*\t/zklock$c->{path}/\S*\n}m },
		"$c->{name}: its server to watch");
	return;
}

# May the judge have the lock at this moment?
sub judge_tries
{
	my ($c, $wanted, $when) = @_;
	return if $c->{judge_holds} || !defined $wanted;
	# A lock that is being released is free in a moment; but a try for leases passes the backends
	# that queue.
	my $timeout = $wanted eq 't' && $c->{kind} ne 'semaphore' ? "${promptly}s" : 0;
	my $answer = $judge->query(acquire($c->{kind}, $c->{path}, $timeout));
	my $is_expired = $answer ne $wanted && !$zk->has_session($c->{session});	# so late is it
	$c->{expired_early} = 1 if $is_expired;
	ok($answer eq $wanted || $is_expired, "$c->{name}: $when, others " . ($wanted eq 't' ? 'can' : 'cannot') . ' have the lock');
	$judge->query(release($c->{kind}, $c->{path})) if $answer eq 't';
	return;
}

sub judge_acquires
{
	my ($c, $when) = @_;
	my $answer = $c->{judge_holds} ? 't' : $judge->query(acquire($c->{kind}, $c->{path}, "${promptly}s"));
	is($answer, 't', "$c->{name}: $when, others have the lock");
	$c->{judge_holds} = $answer eq 't';
	return;
}

sub judge_counts_up
{
	my ($c) = @_;
	my $token = $judge->query("SELECT zk_lock_token('$c->{path}')");
	ask($c->{node}, count_up($c->{path}, $token));
	return;
}

sub judge_releases
{
	my ($c) = @_;
	$judge->query(release($c->{kind}, $c->{path})) if delete $c->{judge_holds};
	return;
}

# The other backend may have the last word only after the first one.
sub judge_counts_up_fenced
{
	my ($c) = @_;
	my $token = $judge->query("SELECT zk_lock_token('$c->{path}')");
	$c->{writer} = $c->{node}->backend;
	$c->{writer}->send("BEGIN; SELECT zk_fence('$c->{path}', $token); " . count_up($c->{path}, $token) . '; COMMIT');
	wait_until($c->{node}, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $c->{writer}->pid);
	return;
}

# How it ended for the victim.
sub check_victim
{
	my ($c, $ending) = @_;
	my $victim = $c->{victim} // return;
	my $result = $victim->{banner} ? $victim->result : { out => '', errcode => '' };

	if ($ending eq 'refused')
	{
		is($result->{errcode}, 'ZK001', "$c->{name}: refused");
		return;
	}
	# If the worker has seen the expiry before it was stopped, the statement may report it.
	my $as_expected = $ending eq 'lost' && $c->{expired_early} ? qr/^(t|[01]|ZK001|)$/ : qr/^(t|[01]|)$/;
	like("$result->{errcode}$result->{out}", $as_expected, "$c->{name}: the statement succeeds");
	if ($ending eq 'held')
	{
		# With a session as short as this, it is in doubt after each standstill of the machine.
		wait_until($c->{node}, q{SELECT safe_until > clock_timestamp() + interval '500 ms' FROM zk_status});
		is($victim->errcode(count_up($c->{path})), '', "$c->{name}: the lock is held, and guards");
	}
	elsif ($ending eq 'lost')
	{
		my $after = $victim->run("SELECT zk_lock_is_held('$c->{path}')");
		is($after->{out}, 'f', "$c->{name}: the lock is not held");
		like($victim->errcode(count_up($c->{path}, 0)), qr/^ZK00[12]$/, "$c->{name}: and guards nothing");
	}
	return;
}

# Nothing is left, and all goes on.
sub settle
{
	my ($c) = @_;
	judge_releases($c);
	if ($c->{victim})
	{
		$c->{victim}->run('ROLLBACK');
		$c->{victim}->run('SELECT zk_lock_release_all()');
		$c->{victim}->quit;
	}
	judge_acquires($c, 'in the end');
	judge_counts_up($c);
	judge_releases($c);
	return;
}

sub check_nothing_left
{
	foreach my $node ($judge_node, @nodes)
	{
		wait_until($node, q{SELECT NOT EXISTS (SELECT FROM zk_locks)
			AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = 0)});
	}
	my $left;
	eval { wait_for(sub { $left = join ' ', grep { /[-_]\d{10}$/ } @{ $zk->tree('/zklock') }; $left eq '' }, 'znodes to go') };
	is($left, '', "$_[0]: no znode is left");
	return;
}

# --- the worker ---

# A server for each.
sub cases_of { my ($what, @rows) = @_; return map { new_case($nodes[$_], $what, $rows[$_]) } 0 .. $#rows; }

# The server may be down.
sub is_new_session { my ($c) = @_; return $c->{node}->wait_until("SELECT state IN ('connected', 'idle') AND safe AND session_id <> '$c->{session}' FROM zk_status"); }

sub check_victim_of_worker
{
	my ($c, $ending) = @_;
	wait_until($c->{node}, "SELECT bool_and(claim = 'lost') FROM zk_locks WHERE path = '$c->{path}'") if $ending eq 'lost';
	return check_victim($c, $ending);
}

# An answer that the worker has slept over proves nothing.
sub continue_to_sign_of_life
{
	my ($c) = @_;
	my $process = $c->{process};
	arm($c, 'safe-until-moved', 'stop');
	kill 'CONT', $process;
	wait_until_there($c);
	is($c->{victim}->run("SELECT zk_lock_is_held('$c->{path}')")->{out}, 'f', "$c->{name}: nobody believes an old sign of life");
	return;
}

# The worker stands still until the session has expired.
sub worker_stands_still
{
	my @batch = cases_of('expiry', @_);
	$_->{second} = $_->{node}->backend foreach @batch;
	start_case($_, 'stop') foreach @batch;
	foreach my $c (@batch)
	{
		wait_until_there($c);
		judge_tries($c, $c->{judge}, 'meanwhile');
		$c->{second}->send(acquire($c->{kind}, $c->{path}, '300 ms')) if $c->{drive_name} ne 'crash';
	}

	foreach my $c (grep { $_->{second}{banner} && $_->{point} !~ $in_the_midst } @batch)
	{
		my $result = $c->{second}->result;
		like("$result->{out}$result->{errcode}", qr/^(f|08006)$/, "$c->{name}: others in the server wait no longer than they wish");
	}
	foreach my $c (@batch)
	{
		wait_for(sub { !$zk->has_session($c->{session}) }, "$c->{name}: the session to expire");
		ok(!$c->{second}->is_done, "$c->{name}: others in the server are held up") if $c->{second}{banner};
		judge_acquires($c, 'on expiry');
		judge_counts_up($c);
		continue_to_sign_of_life($c) if $c->{drive_name} eq 'hold';
		kill 'CONT', $c->{process};
	}
	foreach my $c (@batch)
	{
		is_new_session($c);
		judge_releases($c);
		check_victim_of_worker($c, $c->{expiry});
		isnt($c->{second}->result->{out}, 't', "$c->{name}: who had to wait is too late") if $c->{second}{banner};
		$c->{second}->quit if $c->{drive_name} ne 'crash';
		settle($c);
	}
	return;
}

# The worker stands still until the victim has gone.  A cancel ends the victim's wait.
sub worker_stands_still_briefly
{
	my @batch = cases_of('goodbye', grep { $_->[0] !~ $in_the_midst && $_->[1] !~ /^(crash|expire)$/ } @_);
	start_case($_, 'stop') foreach @batch;
	foreach my $c (@batch)
	{
		my $victim = $c->{victim};
		my $is_waiting = $c->{drive_name} =~ /^(acquire|again|queue|turn|command)$/ && $c->{point} ne 'grant-written';
		wait_until_there($c);
		ask($c->{node}, 'SELECT pg_' . ($is_waiting ? 'cancel' : 'terminate') . '_backend(' . $victim->pid . ')');
		is($victim->result->{errcode}, '57014', "$c->{name}: a wait ends when it is cancelled") if $is_waiting;
		wait_until_gone($c, $victim->pid) unless $is_waiting;
		kill 'CONT', $c->{process};
	}
	settle($_) foreach @batch;
	return;
}

sub worker_fails
{
	my @batch = cases_of('failure', @_);
	start_case($_, 'fail') foreach @batch;
	foreach my $c (@batch)
	{
		my $is_new = $c->{drive_name} =~ /^(expire|crash)$/;
		wait_until_there($c);
		wait_until($c->{node}, "SELECT worker_pid <> $c->{worker} AND worker_pid <> $c->{process} AND state IN ('connected', 'idle') AND safe FROM zk_status");
		my ($session, $epoch) = split /\|/, ask($c->{node}, 'SELECT session_id, epoch FROM zk_status');
		if ($is_new) { isnt($session, $c->{session}, "$c->{name}: another session"); }
		else { is("$session $epoch", "$c->{session} $c->{epoch}", "$c->{name}: the same session"); }
		if ($c->{failure} eq 'held')
		{
			# The next worker makes a znode that is still missing.
			wait_until($c->{node}, "SELECT coalesce(bool_or(granted), false) FROM zk_locks WHERE path = '$c->{path}'") unless $c->{judge_holds};
			judge_tries($c, 'f', 'after that');
		}
		judge_releases($c);
		check_victim_of_worker($c, $c->{failure});
		settle($c);
		$session =~ s/^0x//;
		like(slurp_file($c->{node}->data_dir . '/pg_stat_tmp/zklock.session'), qr/\b0*$session /, "$c->{name}: the file names the session");
	}
	return;
}

# --- the crash of a server ---

sub process_dies
{
	my @batch = cases_of('death', @_);
	start_case($_, 'die') foreach @batch;
	foreach my $c (@batch)
	{
		wait_until_there($c);
		forget_watcher($c->{node});
		$c->{victim}->kill_client if $c->{victim};
		undef $c->{victim};
		judge_releases($c);
	}
	foreach my $c (@batch)
	{
		is_new_session($c);
		is(ask($c->{node}, "SELECT count(*) FROM t WHERE path = '$c->{path}'"),
			$c->{drive_name} =~ /^commit/ && $c->{point} =~ /^xact/ ? 1 : 0,
			"$c->{name}: what was committed is there");
		judge_acquires($c, 'when the server is up again');
		like(slurp_file($c->{node}->logfile, $c->{log_at}), qr/closed the ZooKeeper session that an earlier run of this server left behind/,
			"$c->{name}: because the old session was closed")
		  unless $c->{point} =~ /^(expired|epoch-raised|session-forgotten|session-file-new|old-session-closed)$/;
		settle($c);
	}
	return;
}

# --- backends, all on one server ---

# Each stands still at its point.
sub stop_backends
{
	my ($what, @rows) = @_;
	my @batch = map { new_case($nodes[0], $what, $_) } @rows;
	foreach my $c (@batch)
	{
		start_case($c, 'stop');
		wait_until_there($c);
		wait_until($c->{node}, "SELECT bool_and(ticket = 'owned') FROM zk_locks WHERE path = '$c->{path}'")
		  if $c->{kind} eq 'mutex' && ($c->{judge} // '') eq 'f';
		judge_tries($c, $c->{judge}, 'meanwhile');
	}
	return @batch;
}

sub wait_until_gone
{
	my ($c, $pid) = @_;
	wait_for(sub { !-e "/proc/$pid" }, "$c->{name}: process $pid to end");
	$c->{victim}->kill_client;
	undef $c->{victim};
	return;
}

sub check_backend
{
	my ($c) = @_;
	return wait_until_gone($c, $c->{process}) if $c->{expiry} eq 'gone';
	return check_victim($c, $c->{expiry});
}

sub backends_stand_still
{
	my @batch = stop_backends('expiry', @_);
	my ($node, $worker, $session) = @{ $batch[0] }{qw(node worker session)};

	kill 'STOP', $worker;
	wait_for(sub { !$zk->has_session($session) }, 'the session to expire');
	foreach my $c (@batch)
	{
		judge_acquires($c, 'on expiry');
		$c->{drive_name} eq 'fenced' ? judge_counts_up_fenced($c) : judge_counts_up($c);
	}
	kill 'CONT', map { $_->{process} } @batch;
	# These points need the worker.  A backend that has been granted leases still has the worker
	# look for other kinds of locks on the path.
	my %is_late = map { $_ => $_->{expiry} eq 'held' || $_->{point} =~ /^(command-|request-|semaphore-granted$)/ ? 1 : 0 } @batch;
	check_backend($_) foreach grep { !$is_late{$_} } @batch;
	$_->{writer}->answer, $_->{writer}->quit foreach grep { $_->{writer} } @batch;
	kill 'CONT', $worker;
	is_new_session($batch[0]);
	judge_releases($_) foreach @batch;
	check_backend($_) foreach grep { $is_late{$_} } @batch;
	settle($_) foreach @batch;
	return;
}

sub backends_are_terminated
{
	my @batch = stop_backends('termination', @_);
	foreach my $c (@batch)
	{
		ask($c->{node}, "SELECT pg_terminate_backend($c->{process})");
		kill 'CONT', $c->{process};
		wait_until_gone($c, $c->{process});
		settle($c);
	}
	return;
}

sub backends_are_cancelled
{
	my @batch = stop_backends('cancel', grep { $_->[4] ne 'gone' } @_);
	foreach my $c (@batch)
	{
		ask($c->{node}, "SELECT pg_cancel_backend($c->{process})");
		kill 'CONT', $c->{process};
		like($c->{victim}->result->{errcode}, qr/^(57014)?$/, "$c->{name}: cancelled, or too late for that");
		settle($c);
	}
	return;
}

sub backends_fail
{
	my @batch = map { new_case($nodes[0], 'failure', $_) } grep { $_->[5] ne '-' } @_;
	foreach my $c (@batch)
	{
		start_case($c, 'fail');
		wait_until_there($c);
		is($c->{victim}->result->{errcode}, 'XX000', "$c->{name}: an error");
		judge_tries($c, $c->{failure} eq 'held' ? 'f' : 't', 'after that');
		settle($c);
	}
	return;
}

# --- a server that shuts down ---

sub servers_shut_down
{
	my @actions = qw(stop fail die);
	my @batch = map { new_case($nodes[$_], "shutdown/$actions[$_]", [ 'session-closed', 'shutdown', 'mutex' ]) } 0 .. 2;
	start_case($batch[$_], $actions[$_]) foreach 0 .. 2;
	foreach my $c (@batch)
	{
		wait_until_there($c);
		ok(eval { $zk->wait_until(sub { !$zk->has_session($c->{session}) }, 'the close', $promptly) }, "$c->{name}: the session is closed");
		kill 'CONT', $c->{process} if $c->{action} eq 'stop';
		ends($c);
		$c->{node}->start;
	}
	foreach my $c (@batch)
	{
		is_new_session($c);
		settle($c);
	}
	return;
}

# The connection ends, and the worker learns it only when it is about to close the session.  Or the worker
# fails then.
sub servers_shut_down_without_connection
{
	my @batch = map { new_case($nodes[$_ - 1], "shutdown/$_", [ 'proof-noted', 'shutdown', 'mutex' ]) } 1 .. 3;
	my ($back, $away, $fails) = @batch;
	foreach my $c (@batch)
	{
		# A release would be sent before.
		$c->{node}->set('zklock.linger', '1h');
		$c->{drive}[0]->($c);
		arm($c, $c->{point});
		wait_until_there($c);
		my $backend = $c->{victim}->pid;
		$c->{drive}[1]->($c);
		wait_for(sub { !-e "/proc/$backend" }, "$c->{name}: the backends to end");
	}
	kill 'INT', $fails->{process};
	kill 'CONT', $fails->{process};
	ends($fails);
	$zk->kill9;
	kill 'CONT', $away->{process};
	ends($away);
	$zk->start;
	$zk->wait_until_serving;
	kill 'CONT', $back->{process};
	ends($back);
	ok(!$zk->has_session($back->{session}), "$back->{name}: the next connection closes the session");
	foreach my $ends ([ $away, 'ZooKeeper cannot be reached' ], [ $fails, 'the zklock worker has failed' ])
	{
		my ($c, $why) = @$ends;
		ok($c->{node}->log_contains("leaving the ZooKeeper session to expire, because $why", $c->{log_at}),
			"$c->{name}: the log says that the session is left");
		ok(-e $c->{node}->data_dir . '/pg_stat_tmp/zklock.session', "$c->{name}: and the file names it");
	}
	$_->{node}->start foreach @batch;
	foreach my $c (@batch)
	{
		$c->{node}->set('zklock.linger', 0);
		is_new_session($c);
		settle($c);
	}
	return;
}

# The server has ended.
sub ends
{
	my ($c) = @_;
	wait_for(sub { !-e $c->{node}->data_dir . '/postmaster.pid' }, "$c->{name}: the server to end");
	$c->{victim}->kill_client;
	undef $c->{victim};
	$c->{node}->stop('fast', fail_ok => 1);
	return;
}

# --- a server without its postmaster ---

sub postmaster_dies
{
	my $c = new_case($nodes[0], 'orphan', [ 'commit-begun', 'commit', 'mutex' ]);
	start_case($c, 'stop');
	wait_until_there($c);
	forget_watcher($c->{node});
	$c->{node}->kill9;
	judge_acquires($c, 'on expiry');
	ok(!$c->{node}->start(fail_ok => 1), "$c->{name}: the server does not start while a backend is left");
	kill 'CONT', $c->{process};
	check_victim($c, 'refused');
	wait_until_gone($c, $c->{process});
	$c->{node}->start;
	is_new_session($c);
	is(ask($c->{node}, "SELECT count(*) FROM t WHERE path = '$c->{path}'"), '0', "$c->{name}: nothing is there");
	settle($c);
	return;
}

# --- all of them ---

sub in_batches
{
	my ($function, @rows) = @_;
	while (my @batch = splice @rows, 0, $ways) { $function->(@batch); }
	return;
}

sub part
{
	my ($what, $function, @rows) = @_;
	my $begins = time;
	$function->(@rows);
	check_nothing_left($what);
	note sprintf '%s: %.1f s', $what, time - $begins;
	return;
}
part('backends stand still', \&backends_stand_still, @backend_points,
	[ 'guard-passed', 'fenced', 'mutex', 'f', 'done', '-' ]);
part('the worker stands still', sub { in_batches(\&worker_stands_still, @_) }, @worker_points);
part('the postmaster dies', \&postmaster_dies);

# The releases that follow do not wait for the expiry of a session.  The crashes make new sessions.
$_->set('zklock.session_timeout', '20s') foreach @nodes;
part('processes die', sub { in_batches(\&process_dies, @_) }, @backend_points, @worker_points);
part('backends are terminated', \&backends_are_terminated, @backend_points);
part('backends are cancelled', \&backends_are_cancelled, @backend_points);
part('backends fail', \&backends_fail, @backend_points);
part('the worker stands still briefly', sub { in_batches(\&worker_stands_still_briefly, @_) }, @worker_points);
part('the worker fails', sub { in_batches(\&worker_fails, @_) }, grep { $_->[5] ne '-' } @worker_points);
part('servers shut down', \&servers_shut_down);
part('servers shut down without a connection', \&servers_shut_down_without_connection);

# --- no update was lost ---

foreach my $node (@nodes)
{
	is($node->safe_psql('postgres', q{SELECT path FROM t GROUP BY path HAVING count(*) <> count(DISTINCT v)}),
		$node == $nodes[0] ? '/expiry/guard-passed/commit' : '', $node->name . ': no update was lost, but in the gap after the guard');
	is($node->safe_psql('postgres', q{SELECT path, n FROM (SELECT *, token <= lag(token) OVER (PARTITION BY path ORDER BY v) AS is_wrong FROM t) AS t
		WHERE is_wrong AND path <> '/expiry/guard-passed/commit'}), '', $node->name . ': tokens grow');
}
$judge->quit;
foreach my $node ($judge_node, @nodes)
{
	$node->stop;
	is(() = slurp_file($node->logfile) =~ /(?:PANIC|TRAP)/g, 0, $node->name . ': a quiet log');
}

# --- no point was left out ---

my @points = map { slurp_file($_) =~ /ZKL_FAULT_POINT\("(.*?)"\)/g } glob "$FindBin::Bin/../../src/{,*/,*/*/}*.c";
# (A point that only one scene can reach has a file of its own.)
my %tested = map { $_ => 1 } (map { $_->{point} } @cases),
  map { slurp_file($_) =~ /(?:zklock\.fault\.|')(\w+-[\w-]+)/g } grep { !/016_/ } glob "$FindBin::Bin/*_fault_points.pl";
cmp_ok(@points, '>', 60, 'there are points');
is(join(' ', sort @points), join(' ', sort(uniq(@points))), 'each name is used once');
is(join(' ', grep { !$tested{$_} } sort @points), '', 'all points are tested');

done_testing();
