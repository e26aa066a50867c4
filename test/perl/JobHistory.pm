
=head1 NAME

JobHistory - what callers saw of jobs and of a leadership under faults, and whether that can be

=head1 SYNOPSIS

	push @problems, JobHistory::problems($history);		# a FaultHistory
	my $tick_of = JobHistory::last_ticks(@records);

Records as in L<FaultHistory>, with times of the same clock, and:

	op=run claim= who= node= path= tick= retry=1 timeout= wall= result= code= final=1
		may it run this tick?  Tick and wall are seconds since 1970; wall is the true time of
		the answer.  Final: everything works, and no other client calls.
	op=ran claim= wid= result=			the commit of what the run wrote
	op=gave_up claim= result=			a run that its caller has rolled back
	op=settled claim= state= result=	what the record said of a run that has committed: started,
		done, failed, or replaced by another run's.  Result is C<ok> if the server has not
		crashed since the grant, nor lost a ZooKeeper session.
	op=ran_row node= path= tick= wid=	what is in the database at the end
	op=led node= path= token= wid= asked= from= result=		a transaction was told that its server leads,
		by C<from>, and has committed
	op=led_row node= token= wid=		what is in the database at the end, in order of its writing

A run holds its lock, and a leadership is a claim of its server: L<FaultHistory> judges their
exclusion and their tokens.

=cut

package JobHistory;

use strict;
use warnings;


# A tick may be so far ahead of ZooKeeper's time, in seconds; our own clock may differ a bit.
my $ahead_max = 61;

# An answer that came so much earlier than the timeout was not due to the timeout, in us.
my $early = 100_000;

=head1 FUNCTIONS

=over

=item JobHistory::problems($history)

What is wrong, as a list of messages, each beginning with the name of its rule.

=item JobHistory::last_ticks(@records)

The last tick that was run of each path, as a hash.

=item JobHistory::terms(@records)

The claims of servers on leaderships, each with its evidence.

=back

=cut

sub _show { return join ' and ', map { FaultHistory::line($_) } @_; }

sub problems
{
	my ($history) = @_;
	my @runs = _runs($history);
	my %of_path;
	push @{ $of_path{ $_->{path} } }, $_ foreach @runs;

	my @problems = (_ahead(@runs), _rows($history, @runs), _led_rows($history));
	foreach my $path (sort keys %of_path)
	{
		my @calls = @{ $of_path{$path} };
		my @granted = grep { $_->{result} eq 'ok' } @calls;
		push @problems, _once(@granted), _twice(@granted), _older(@granted), _refused(@calls), _final(@calls);
	}
	$history->{figures}{"run_$_->{result}"}++ foreach @runs;
	$history->{figures}{ticks} = keys %{ { map { ("$_->{path} $_->{tick}" => 1) } grep { $_->{result} eq 'ok' } @runs } };
	$history->{figures}{runs_committed} = grep { $_->{is_there} } @runs;
	$history->{figures}{runs_in_the_gap} = grep { $_->{is_there} && !$_->{is_settled} } @runs;
	return @problems;
}

# The calls in order of time, each with what is known of its end: "is_there" (its work is in
# the database), "gave_up" and "settled", the records, and "is_settled".
sub _runs
{
	my ($history) = @_;
	my @runs = $history->_of('run');
	my %by_claim = map { $_->{claim} => $_ } @runs;
	my %row = map { $_->{wid} => $_ } $history->_of('ran_row');
	foreach my $op (qw(ran gave_up settled))
	{
		foreach my $record (grep { $by_claim{ $_->{claim} } } $history->_of($op))
		{
			$by_claim{ $record->{claim} }{$op} = $record;
		}
	}
	foreach my $run (@runs)
	{
		$run->{is_there} = $run->{ran} && $row{ $run->{ran}{wid} } ? 1 : 0;
		$run->{is_settled} = $run->{settled} && $run->{settled}{result} eq 'ok' ? 1 : 0;
	}
	return @runs;
}

sub last_ticks
{
	my %last;
	foreach my $run (grep { $_->{op} eq 'run' && $_->{result} eq 'ok' } @_)
	{
		$last{ $run->{path} } = $run->{tick} if ($last{ $run->{path} } // $run->{tick}) <= $run->{tick};
	}
	return \%last;
}

sub _say
{
	my ($rule, @runs) = @_;
	return "$rule: " . join ' and ', map {
		my $run = $_;
		"$run->{claim} ($run->{path} tick $run->{tick} from $run->{t} to $run->{end}"
		  . join('', map { $run->{$_} ? ", $_ $run->{$_}{result} at $run->{$_}{t}" : '' } qw(ran gave_up settled)) . ')'
	} @runs;
}

# A clock that is wrong by years uses no tick up.
sub _ahead
{
	return map { _say('ahead', $_) } grep { $_->{result} eq 'ok' && $_->{tick} > $_->{wall} + $ahead_max } @_;
}

# Without retry, one run for each tick, whatever becomes of it.
sub _once
{
	my (%first, @problems);
	foreach my $run (grep { !$_->{retry} } @_)
	{
		my $other = $first{ $run->{tick} } //= $run;
		push @problems, _say('once', $other, $run) if $other != $run;
	}
	return @problems;
}

# With retry, no run follows one that has committed, unless its server did not live to write that
# down.
sub _twice
{
	my (%of_tick, @problems);
	push @{ $of_tick{ $_->{tick} } }, $_ foreach grep { $_->{retry} } @_;
	foreach my $runs (map { $of_tick{$_} } sort keys %of_tick)
	{
		foreach my $done (grep { $_->{is_there} && $_->{is_settled} } @$runs)
		{
			push @problems, map { _say('twice', $done, $_) } grep { $_ != $done && $_->{end} > $done->{ran}{end} } @$runs;
		}
	}
	return @problems;
}

sub _older
{
	my ($newest, @problems);
	my @by_end = sort { $a->{end} <=> $b->{end} } @_;
	foreach my $run (sort { $a->{t} <=> $b->{t} } @_)
	{
		while (@by_end && $by_end[0]{end} < $run->{t})
		{
			my $earlier = shift @by_end;
			$newest = $earlier if !$newest || $earlier->{tick} > $newest->{tick};
		}
		push @problems, _say('older', $newest, $run) if $newest && $newest->{tick} > $run->{tick};
	}
	return @problems;
}

# A call that waits is refused because of another run: of a later tick, or of this one, unless that
# run is over and may be repeated.
sub _refused
{
	my @problems;
	foreach my $call (grep { $_->{result} eq 'no' && $_->{end} - $_->{t} < $_->{timeout} - $early } @_)
	{
		my @reasons = grep { $_->{t} < $call->{end} && $_->{result} ne 'no' && $_->{tick} >= $call->{tick}
			&& !($call->{retry} && $_->{tick} == $call->{tick} && _has_failed($_, $call->{t})) } @_;
		push @problems, _say('refused', $call) unless @reasons;
	}
	return @problems;
}

# Was the run over at this time, and is it certain that it has failed?
sub _has_failed
{
	my ($run, $at) = @_;
	my ($end) = grep { defined } $run->{gave_up}, $run->{ran}, $run->{result} eq 'fail' ? $run : ();
	return $end && $end->{end} < $at && ($run->{gave_up} || $end->{result} eq 'fail');
}

# At least once while callers are left: the last caller runs the tick, unless it was run.  A commit may
# be refused, because the machine stood still; so only the last call must commit.
sub _final
{
	my @problems;
	my @finals = grep { $_->{final} } @_;
	foreach my $call (@finals)
	{
		my @done = grep { $_ != $call && $_->{tick} >= $call->{tick} && ($_->{is_there} || !$call->{retry}) } @_;
		push @problems, _say('final: no client has run it', $call) if $call->{result} ne 'ok' && !@done;
		push @problems, _say('final: has not committed', $call)
		  if $call->{result} eq 'ok' && !$call->{is_there} && $call == $finals[-1];
	}
	return @problems;
}

# Committed work is there, and the record says so.
sub _rows
{
	my ($history, @runs) = @_;
	my @ended = grep { $_->{ran} } @runs;
	my %is_known = map { ($_->{ran}{wid} => 1) } @ended;
	return
	  (map { _say('run: is not there', $_) } grep { $_->{ran}{result} eq 'ok' && !$_->{is_there} } @ended),
	  (map { _say('run: is there', $_) } grep { $_->{ran}{result} eq 'fail' && $_->{is_there} } @ended),
	  (map { _say("record: $_->{settled}{state}", $_) }
		grep { $_->{is_there} && $_->{is_settled} && $_->{settled}{state} !~ /^(done|replaced)$/ } @ended),
	  (map { 'run: of no client: ' . _show($_) } grep { !$is_known{ $_->{wid} } } $history->_of('ran_row'));
}

# --- leadership ---

sub terms
{
	my (%terms);
	foreach my $led (grep { $_->{op} eq 'led' && $_->{result} eq 'ok' } @_)
	{
		my $id = "$led->{node}:$led->{token}";
		my $term = $terms{$id} //= { id => $id, claim => $id, who => $led->{node}, node => $led->{node},
			path => $led->{path}, kind => 'mutex', token => $led->{token}, evidence => [] };
		$term->{t} = $led->{asked} if !defined $term->{t} || $led->{asked} < $term->{t};
		push @{ $term->{evidence} }, { t => $led->{asked}, end => $led->{from} }, { t => $led->{t}, end => $led->{end} };
	}
	$_->{end} = (sort { $a <=> $b } map { $_->{end} } @{ $_->{evidence} })[0] foreach values %terms;
	return values %terms;
}

sub _led_rows
{
	my ($history) = @_;
	my %row = map { $_->{wid} => $_ } $history->_of('led_row');
	my @led = $history->_of('led');
	$history->{figures}{"led_$_->{result}"}++ foreach @led;
	return
	  (map { 'led: is not there: ' . _show($_) } grep { $_->{result} eq 'ok' && !$row{ $_->{wid} } } @led),
	  (map { 'led: is there: ' . _show($_) } grep { $_->{result} eq 'fail' && $row{ $_->{wid} } } @led);
}

1;
