# One session on random walks through what it can do with its locks: acquire and release in each mode, at both levels,
# in savepoints, in statements that fail.  After most statements, zk_locks and pg_locks show what a model expects.
# The first walks are the same each time.  WALK_SEED=n begins the others, and WALK_SECONDS=n is how long they take.

use strict;
use warnings;

use List::Util qw(sum0);
use Time::HiRes qw(time);

use PgWire;
use ZklockTest;

my $node = ZklockNode->started('walker', ZooKeeper->new);
$node->safe_psql('postgres', q{
	CREATE TABLE written (i int);
	CREATE FUNCTION look() RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM zk_lock_is_held('/walk');	-- notices pg_advisory_unlock_all()
		RETURN concat_ws('; ',
			(SELECT string_agg(DISTINCT format('%s %s %s %s+%s token=%s', path, kind, mode, session_count, xact_count, zk_lock_token(path)), '; ')
			 FROM zk_locks WHERE pid = pg_backend_pid() AND claim = 'held' AND NOT contended AND NOT revoked AND lease_ends IS NULL),
			(SELECT string_agg(mode, ' ' ORDER BY mode) FROM pg_locks
			 WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND database = 0 AND granted AND NOT fastpath));
	END $$});

# What the session may hold, by the name in the functions and a number: path, and what zk_locks and pg_locks show.  A
# writer that also reads shows as one.
my %holds = map { ("lock $_" => [ "/walk/m$_", 'mutex exclusive', 'ExclusiveLock' ],
		"read_lock $_" => [ "/walk/r$_", 'read-write read', 'ShareLock' ],
		"semaphore $_" => [ "/walk/s$_", 'semaphore lease', 'ShareLock' ],
		"write_lock $_" => [ "/walk/r$_", 'read-write write', 'ExclusiveLock' ]) } 0 .. 2;
my @holds = sort keys %holds;
my @wanted;			# by this walk, which keeps to a few paths
my $LEASES = 3;

# --- the model: how often each is held at each level, and what a rollback brings back ---

my (%session, %xact, @savepoints, $in_block, $failed);
my %claims;			# how many there were of each path

sub pick { return $_[ rand @_ ]; }
sub count { return sum0(map { ($session{$_} // 0) + ($xact{$_} // 0) } @_); }
sub of_path { my ($path) = @_; return grep { $holds{$_}[0] eq $path } @holds; }
sub forget_session { my $n = sum0(values %session); %session = (); return $n; }
sub roll_back { my ($savepoint) = @_; %xact = %$savepoint; $failed = 0; return; }
sub end_block { @savepoints = (); $in_block = 0; return roll_back({}); }

# A call: its SQL, its value or error, and whether it warns.
sub call
{
	my $hold = pick(@wanted);
	my ($name, $path) = ($hold =~ /(\w+)/, $holds{$hold}[0]);
	my $quantity = $name eq 'semaphore' ? 1 + int rand 2 : 1;
	my $is_held = count(of_path($path)) > 0;
	my $what = rand;
	if ($what < 0.6)
	{
		my $level = pick('zk', 'zk_xact');
		my $sql = "${level}_${name}_acquire('$path'" . ($name eq 'semaphore' ? ", $LEASES, '0', $quantity)" : pick(')', ", '1 hour')", ", '0')"));
		return { sql => $sql, error => '55000' } if $name eq 'write_lock' && $is_held && !count($hold);
		return { sql => $sql, value => 'f' } if $name eq 'semaphore' && count($hold) + $quantity > $LEASES;
		$claims{$path}++ if !$is_held;
		my $counts = $level eq 'zk' ? \%session : \%xact;
		$counts->{$hold} += $quantity;
		return { sql => $sql, value => 't', once_more => $name ne 'semaphore' && \$counts->{$hold} };
	}
	if ($what < 0.85)
	{
		my $sql = "zk_${name}_release('$path'" . ($name eq 'semaphore' ? ", $quantity)" : ')');
		return { sql => $sql, value => 'f', warns => 1 } if ($session{$hold} // 0) < $quantity;
		$session{$hold} -= $quantity;
		return { sql => $sql, value => 't' };
	}
	return { sql => "zk_lock_is_held('$path')", value => $is_held ? 't' : 'f' } if $what < 0.9;
	return { sql => "zk_lock_token('$path') > 0", $is_held ? (value => 't') : (error => '55000') } if $what < 0.92;
	return { sql => '1 / (0 * random())', error => '22012' } if $what < 0.95;
	return { sql => 'zk_lock_release_all()', value => forget_session() } if $what < 0.98;
	forget_session();
	return { sql => 'pg_advisory_unlock_all()', value => '' };
}

# Some calls, until one fails: their list, what comes of them, and the warnings.
sub calls
{
	my @calls = call();
	push @calls, call() until $calls[-1]{error} || rand() < 0.5;
	my %functions = map { $_->{sql} =~ s/\(.*//r => 1 } @calls;
	my $only = join ' ', keys %functions;
	return {
		list => join(', ', map { $_->{sql} } @calls),
		error => $calls[-1]{error},
		once_more => @calls == 1 && $calls[0]{once_more},
		result => $calls[-1]{error} // join('|', map { $_->{value} } @calls),
		warnings => [ ('you do not own') x grep { $_->{warns} } @calls ],
		is_alone => $only =~ /^zk_xact\S+$/ && !$calls[-1]{error} && !!grep { $_->{value} eq 't' } @calls };
}

# A statement with calls ends.
sub end_statement
{
	my ($error) = @_;
	$failed = $error && $in_block;
	%xact = () if !$in_block;
	return;
}

sub transaction_control
{
	my $what = pick(('SAVEPOINT') x 5, ('RELEASE') x 2, ('ROLLBACK TO') x 3, 'COMMIT', 'ROLLBACK');
	my $i = int rand @savepoints;
	my $result = $failed ? '25P02' : '';
	if ($what eq 'SAVEPOINT')
	{
		push @savepoints, {%xact} if !$failed;
		return { sql => "SAVEPOINT s" . ($failed ? '' : $#savepoints), result => $result };
	}
	elsif ($what eq 'RELEASE' && @savepoints)
	{
		$#savepoints = $i - 1 if !$failed;
		return { sql => "RELEASE s$i", result => $result };
	}
	elsif ($what eq 'ROLLBACK TO' && @savepoints)
	{
		$#savepoints = $i;
		roll_back($savepoints[$i]);
		return { sql => "ROLLBACK TO s$i", result => '' };
	}
	end_block();			# also where there is no savepoint
	return $what eq 'COMMIT' ? { sql => 'COMMIT', result => $result } : { sql => 'ROLLBACK', result => '' };
}

# The next statements: each with what comes of it, and the warnings.
sub step
{
	my $what = rand;
	return transaction_control() if $in_block && ($failed || $what < 0.35);
	if (!$in_block && $what < 0.45)
	{
		$in_block = $what > 0.03;
		forget_session() if !$in_block;
		return { sql => $in_block ? 'BEGIN' : 'DISCARD ALL', result => '' };
	}
	if ($what < 0.5)
	{
		my $error = pick('', '22012');
		end_statement($error);
		return { sql => $error ? 'SELECT 1 / 0' : 'INSERT INTO written VALUES (1)', result => $error };
	}
	my $before = {%xact};
	my $calls = calls();
	my @warnings = @{ $calls->{warnings} };
	if ($what > 0.97)			# they are rolled back, and the error is caught
	{
		roll_back($before);
		end_statement();
		my $performs = join ' ', map { "PERFORM $_;" } split /, (?=zk|pg|1 )/, $calls->{list};
		return { sql => "DO \$\$ BEGIN $performs RAISE 'enough'; EXCEPTION WHEN OTHERS THEN NULL; END \$\$", result => '', warnings => \@warnings };
	}
	if ($what > 0.94 && $in_block)		# a cursor that the commit runs
	{
		end_block();
		return { sql => "DECLARE held CURSOR WITH HOLD FOR SELECT $calls->{list}", result => '' },
		  { sql => 'COMMIT', result => $calls->{error} // '', warnings => \@warnings }, { sql => 'CLOSE ALL', result => '' };
	}
	if ($what > 0.9 && !$calls->{error})		# sent together, they are one transaction
	{
		my $more = calls();
		end_statement($more->{error});
		return { sql => "SELECT $calls->{list}; SELECT $more->{list}", result => $more->{result}, warnings => [ @warnings, @{ $more->{warnings} } ] };
	}
	if ($calls->{once_more} && rand() < 0.2)
	{
		${ $calls->{once_more} }++;
		$calls->{list} .= ' FROM generate_series(1, 2)';
		$calls->{is_alone} = 0;
	}
	push @warnings, 'should be called in a transaction block' if !$in_block && $calls->{is_alone};
	end_statement($calls->{error});
	return { sql => "SELECT $calls->{list}", result => $calls->{result}, warnings => \@warnings };
}

# What look() shows, but for the tokens.
sub look
{
	my @held = grep { count($_) > 0 } @holds;
	my %shown = map { @{ $holds{$_} }[ 0, 1 ] } @held;		# a writer that reads shows as one that writes
	my @claims = map { "$_ $shown{$_} " . sum0(map { $session{$_} // 0 } of_path($_)) . '+' . sum0(map { $xact{$_} // 0 } of_path($_)) } sort keys %shown;
	return { sql => 'SELECT look()', result => join('; ', @claims, join(' ', sort map { $holds{$_}[2] } @held) || ()), claims => {%claims} };
}

# --- the walks ---

# Thirty steps, and the way back.
sub plan_walk
{
	my @walk;
	@wanted = map { of_path($holds{ pick(@holds) }[0]) } 1 .. 3;
	foreach (1 .. 30)
	{
		push @walk, step();
		push @walk, look() if !$failed && rand() < 0.8;
	}
	push @walk, { sql => 'ROLLBACK', result => '' } if $in_block;
	end_block();
	push @walk, { sql => 'SELECT zk_lock_release_all()', result => forget_session() }, look();
	return @walk;
}

# A claim keeps its token, and the next one has a greater one.  But a lease may be older than another client's.
my %seen;
sub judge_token
{
	my ($path, $token, $claim) = @_;
	my ($last_claim, $last) = @{ $seen{$path} // [ 0, 0 ] };
	$seen{$path} = [ $claim, $token ];
	return $path =~ /s.$/ || ($claim == $last_claim ? $token == $last : $token > $last) ? '' : " token=$token after $last";
}

# Is what comes of a statement as expected?  Notes both.
sub judge
{
	my ($log, $statement, $answer) = @_;
	my $result = $answer->{error} || join '|', map { $_ // '' } @{ $answer->{rows}[-1] // [] };
	$result =~ s{(/walk/\S+)([^;]*) token=(\d+)}{ $1 . $2 . judge_token($1, $3, $statement->{claims}{$1}) }ge;
	my @got = ($result, @{ $answer->{notices} });
	my @expected = ($statement->{result}, @{ $statement->{warnings} // [] });
	push @$log, "$statement->{sql}\n\t" . join "\n\t", @got;
	return 1 if @got == @expected && $got[0] eq $expected[0] && !grep { index($got[$_], $expected[$_]) < 0 } 1 .. $#got;
	push @$log, "expected:\n\t" . join "\n\t", @expected;
	return 0;
}

sub walks
{
	my ($what, $first, $goes_on) = @_;
	my ($pg, $n);
	for ($n = 0; !$n || $goes_on->($n); $n++)
	{
		$pg = PgWire->new($node->host, $node->port, 'walker', patience => 30) if $n % 10 == 0;
		srand $first + $n;
		my @walk = plan_walk();
		my @answers = $pg->queries(map { $_->{sql} } @walk);
		my @log;
		foreach my $statement (@walk)
		{
			judge(\@log, $statement, shift @answers) and next;
			diag join "\n", @log;
			return fail('WALK_SEED=' . ($first + $n));
		}
	}
	return pass("$what: $n walks");
}

my $seed = $ENV{WALK_SEED} // int rand 1_000_000_000;
my $until;
if (walks('always the same', 1, sub { $_[0] < ($ENV{VALGRIND} ? 20 : 200) })
	&& walks("seed $seed", $seed, sub { time < ($until //= time + ($ENV{WALK_SECONDS} // 5)) }))
{
	$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM zk_locks WHERE path LIKE '/walk/%')});
	pass('nothing is left');
}
$node->stop('immediate');
done_testing();
